#include "optimizations/pipeline_stages/pipeline_stages.h"

#include "base/error.h"
#include "base/units.h"
#include "model/task.h"
#include "optimizations/pipeline_stages/pipeline_runner.h"
#include "train/plan.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

namespace trainopt::pipeline_stages {
namespace {

constexpr const char* kBy = "parallel.pipeline";

/// The part of the model that this rank holds, tied weights included.
void count_parameters(Plan& plan, const Model& model) {
  const UnitRange& held = plan.stages.held();
  plan.stages.parameters = plan.model.bfloat16_parameters = 0;
  for (const StateEntry& entry : model.entries()) {
    const bool is_used =
        std::any_of(entry.also_in.begin(), entry.also_in.end(), [&](size_t unit) { return held.contains(unit); });
    if (!entry.trainable || !(is_used || held.contains(entry.unit))) continue;
    plan.stages.parameters += entry.tensor.numel();
    if (plan.model.in_bfloat16.contains(entry.name)) plan.model.bfloat16_parameters += entry.tensor.numel();
  }
}

/// "34, 33 and 33 %" of the operations.
std::string shares_of(const Model& model, const std::vector<UnitRange>& stages) {
  std::string text;
  for (const UnitRange& stage : stages) {
    const auto begin = model.unit_flops().begin();
    const double flops =
        std::accumulate(begin + static_cast<int64_t>(stage.first), begin + static_cast<int64_t>(stage.end), 0.0);
    text += fmt::format("{}{:.0f}",
                        text.empty()               ? ""
                        : &stage == &stages.back() ? " and "
                                                   : ", ",
                        100 * flops / model.flops_per_sample());
  }
  return text + " %";
}

Receipt receipt(const StepTrace& seen, const StagePlan& plan) {
  const auto micro_batches = static_cast<int64_t>(seen.count(kMicroBatchesLabel));
  const double steps_ms = seen.count(kStepsLabel);
  const std::string waited = steps_ms > 0 ? fmt::format("; waited {:.0f} % of the time for its neighbours",
                                                        100 * seen.count(kWaitedLabel) / steps_ms)
                                          : "";
  return {.observed = fmt::format("stage {} of {}: {} a step, at most {:.0f} in flight{}; {:.0f} % if all stages took "
                                  "equally long",
                                  plan.stage + 1, plan.stages(), counted(micro_batches, "micro-batch", "es"),
                                  seen.count(kInFlightLabel), waited,
                                  100 * idle_share(plan.stages(), std::max<int64_t>(micro_batches, 1)))};
}

/// The task of a stage that is not the last. Its loss is 0, with a backward through the later stages; the last stage's
/// ranks have the whole loss.
class StageTask : public Task {
 public:
  explicit StageTask(std::unique_ptr<Task> inner) : inner_(std::move(inner)) {}
  TaskOutput loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                  const ForwardContext& context) const override {
    return {forward(model, input, target, context), {}};
  }
  TaskOutput evaluation_loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                             const ForwardContext& context) const override {
    forward(model, input, target, context);
    return {};
  }
  Metrics metrics() const override { return inner_->metrics(); }
  at::Tensor correct(const at::Tensor&, const at::Tensor&) const override { return {}; }

 private:
  /// A program that computes its own loss may use the target in any unit.
  static at::Tensor forward(Model& model, const at::Tensor& input, const at::Tensor& target,
                            const ForwardContext& context) {
    ForwardContext with_target = context;
    with_target.target = target;
    return model.forward(input, with_target);
  }

  std::unique_ptr<Task> inner_;
};

std::unique_ptr<StepRunner> build_runner(const BuildContext& context, PipelineSchedule schedule) {
  const StagePlan& plan = context.plan.stages;
  const auto links = std::make_shared<StageLinks>(*context.groups, plan.stage);
  link_stages(*context.model, plan, links);
  join_stages(context);
  return make_pipeline_runner({.warm_up = warm_up(schedule, plan.stages(), plan.stage),
                               .accumulates = context.plan.data.accumulation > 1,
                               .links = links});
}

/// Throws UserError if a stage could not be given what earlier ones leave to it.
void require_known_side_values(const Model& model, const std::vector<UnitRange>& stages) {
  std::vector<int64_t> input = model.shapes().front();
  input.insert(input.begin(), 1);
  for (const UnitRange& stage : stages)
    for (const bool training : {true, false}) model.passed_values()(stage.first, input, training);
}

}  // namespace

Outcome apply(Plan& plan, const PipelineConfig& config) {
  const int64_t ranks = plan.position.ranks;
  if (ranks == 1)
    return Outcome::none(fmt::format("there is only one rank; start {} or a multiple of it", config.stages));
  const Model model = plan.model.shapes();
  const auto units = static_cast<int64_t>(model.units().size());
  if (units < config.stages)
    throw UserError(fmt::format("parallel.pipeline.stages: the {} has fewer units than stages: {}, {}",
                                plan.model.noun(), units, config.stages));
  plan.stages.units = balanced_stages(model.unit_flops(), config.stages);
  require_known_side_values(model, plan.stages.units);
  plan.stages.stage = plan.position.rank / plan.stages.replica.ranks;
  plan.stages.micro_batches = config.micro_batches;
  count_parameters(plan, model);
  const int64_t micro_batches = config.micro_batches * plan.data.accumulation;
  plan.runner.fill(
      kBy,
      fmt::format("{} through {}, {}", counted(micro_batches, "micro-batch", "es"), counted(config.stages, "stage"),
                  word_of(config.schedule)),
      [schedule = config.schedule](const BuildContext& context) { return build_runner(context, schedule); });
  if (!plan.stages.is_last())
    plan.task.wrap(kBy, "computed by the last stage", [](const BuildContext&, std::unique_ptr<Task> inner) {
      return std::make_unique<StageTask>(std::move(inner));
    });
  const bool all = config.schedule == PipelineSchedule::gpipe;
  return Outcome::applied(
      fmt::format(
          "{} stages of {} of the operations, each on {}; {} in flight, activations of {}; idle {:.0f} % of the "
          "time if all stages take equally long",
          config.stages, shares_of(model, plan.stages.units), counted(plan.stages.replica.ranks, "rank"),
          counted(micro_batches, "micro-batch", "es"),
          all ? "all of them kept" : fmt::format("at most {} kept", std::min(config.stages, micro_batches)),
          100 * idle_share(config.stages, micro_batches)),
      [stages = plan.stages](const StepTrace& seen) { return receipt(seen, stages); });
}

std::vector<UnitRange> balanced_stages(const std::vector<double>& costs, int64_t stages) {
  const size_t units = costs.size(), count = static_cast<size_t>(stages);
  TRAINOPT_CHECK(1 <= count && count <= units);
  std::vector<double> before(units + 1, 0);  // cost of the units before each
  for (size_t unit = 0; unit < units; ++unit) before[unit + 1] = before[unit] + costs[unit];
  // best[s][end]: cost of the most expensive of s + 1 stages that hold the first `end` units; begin: of the last one.
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(count, std::vector<double>(units + 1, kNever));
  std::vector<std::vector<size_t>> begin(count, std::vector<size_t>(units + 1, 0));
  for (size_t end = 1; end <= units; ++end) best[0][end] = before[end];
  for (size_t stage = 1; stage < count; ++stage)
    for (size_t end = stage + 1; end <= units; ++end)
      for (size_t first = stage; first < end; ++first) {
        const double most = std::max(best[stage - 1][first], before[end] - before[first]);
        if (most >= best[stage][end]) continue;
        best[stage][end] = most;
        begin[stage][end] = first;
      }
  std::vector<UnitRange> ranges(count);
  size_t end = units;
  for (size_t stage = count; stage-- > 0;) {
    ranges[stage] = {.first = begin[stage][end], .end = end};
    end = ranges[stage].first;
  }
  return ranges;
}

}  // namespace trainopt::pipeline_stages
