#include "train/evaluation.h"

#include "base/clock.h"
#include "base/error.h"
#include "comm/communicator.h"
#include "device/tensor.h"
#include "train/plan.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace trainopt {
namespace {

/// The shape of a batch like `batch` with one sample.
std::vector<int64_t> one_of(const at::Tensor& batch) {
  auto sizes = batch.sizes().vec();
  sizes.front() = 1;
  return sizes;
}

template <class Result>
Json numbers_json(const Result& result) {
  return {{"loss", result.loss},
          {"top1_pct", result.top1_pct ? Json(*result.top1_pct) : Json()},
          {"top5_pct", result.top5_pct ? Json(*result.top5_pct) : Json()},
          {"perplexity", result.perplexity ? Json(*result.perplexity) : Json()}};
}

template <class Result>
void read_numbers(const Json& json, Result& result) {
  const Json& loss = json.at("loss");  // null: non-finite, which JSON cannot represent
  const auto known = [&](const char* key) {
    const Json value = json.value(key, Json());
    return value.is_null() ? std::nullopt : std::optional(value.get<double>());
  };
  result.loss = loss.is_null() ? std::numeric_limits<double>::quiet_NaN() : loss.get<double>();
  result.top1_pct = known("top1_pct");
  result.top5_pct = known("top5_pct");
  result.perplexity = known("perplexity");
}

/// Samples that all ranks evaluate.
int64_t planned_samples(const BatchSchedule& schedule) {
  int64_t samples = 0;
  for (int64_t step = 0; step < schedule.steps_per_epoch(); ++step) samples += schedule.at(step, 0).step_items;
  return samples;
}

/// Leaves out what was loaded in place of samples that could not be used: it would count twice. `first`: the batch's
/// position in the epoch's `order`.
void leave_out_substitutes(Batch& batch, int64_t first, const EpochOrder& order) {
  std::vector<int64_t> rows, samples;
  for (int64_t row = 0; row < batch.items; ++row) {
    const int64_t sample = batch.sample_ids[static_cast<size_t>(row)];
    if (sample != order(first + row)) continue;
    rows.push_back(row);
    samples.push_back(sample);
  }
  const auto left = static_cast<int64_t>(rows.size());
  if (left == batch.items) return;
  TRAINOPT_CHECK_EQUAL(batch.tokens, 0);  // text is never substituted
  const at::Tensor index = at::tensor(rows, at::kLong).to(batch.input.device());
  const auto format = batch.input.suggest_memory_format();
  batch.input = batch.input.index_select(0, index).contiguous(format);
  batch.target = batch.target.index_select(0, index);
  batch.sample_ids = std::move(samples);
  batch.items = left;
}

/// This rank's sums: loss, top-1 hits, top-5 hits, samples and tokens to predict; null if stopped. They stay on the
/// device until the end, in double so that millions of samples lose no precision.
std::optional<at::Tensor> sums_of(Model& model, Task& task, Precision& precision, const DataPlan& data,
                                  BatchSource& batches, at::Device device, const std::function<bool()>& stopped) {
  at::Tensor sums = at::zeros({5}, at::TensorOptions(device).dtype(at::kDouble));
  const BatchSchedule schedule = data.schedule();
  const EpochOrder order = data.sampler().order(0);
  for (int64_t step = 0; step < schedule.steps_per_epoch(); ++step) {
    if (stopped()) return std::nullopt;
    Batch batch = batches.next();
    if (data.bad_samples.substitute) leave_out_substitutes(batch, schedule.at(step, 0).first, order);
    const bool nothing = batch.items == 0;  // the last batch has none for this rank, or all were left out; the rank
                                            // must still join the model's collectives
    const at::Tensor input = nothing ? batch.input.new_zeros(one_of(batch.input)) : batch.input;
    const at::Tensor target = nothing ? batch.target.new_zeros(one_of(batch.target)) : batch.target;
    const auto autocast = precision.autocast();
    const auto output =
        task.evaluation_loss(model, input, target, ForwardContext{.training = false, .generator = std::nullopt});
    if (nothing || !output.loss.defined()) continue;
    sums[0] += output.loss.to(at::kDouble) * (batch.tokens > 0 ? batch.tokens : batch.items);
    if (task.metrics() == Metrics::accuracy) sums.narrow(0, 1, 2) += task.correct(output.outputs, target);
    sums[3] += batch.items;
    sums[4] += batch.tokens;
  }
  return sums;
}

}  // namespace

Json to_json(const EvaluationResult& result) {
  Json json = numbers_json(result);
  json["samples"] = result.samples;
  if (result.left_out > 0) json["left_out_samples"] = result.left_out;
  if (!result.trained_on.empty()) json["trained_on"] = result.trained_on;
  json["wall_s"] = result.wall_s;
  if (result.average) json["average"] = numbers_json(*result.average);
  return json;
}

EvaluationResult evaluation_from(const Json& json) {
  EvaluationResult result;
  read_numbers(json, result);
  result.samples = json.at("samples").get<int64_t>();
  result.left_out = json.value("left_out_samples", int64_t{0});
  result.trained_on = json.value("trained_on", std::string());
  result.wall_s = json.at("wall_s").get<double>();
  if (json.contains("average")) read_numbers(json.at("average"), result.average.emplace());
  return result;
}

std::optional<EvaluationResult> evaluate(Model& model, Task& task, Precision& precision, const Plan& plan,
                                         Communicator& communicator, std::vector<RefusedSample>& bad_samples,
                                         const std::function<bool()>& stopped) {
  const at::NoGradGuard no_grad;
  const auto started = Clock::now();
  DataPlan data = plan.evaluation.value().data;
  data.bad_samples.leaves_out = true;
  const auto batches = plan.open_batches(data, {.end = data.schedule().steps_per_epoch()}, bad_samples);
  std::optional<at::Tensor> sums;
  try {
    sums = sums_of(model, task, precision, data, *batches, plan.device, stopped);
  } catch (...) {
    bad_samples = batches->bad_samples();  // so that the run still lists them
    throw;
  }
  bad_samples = batches->bad_samples();
  if (!sums) return std::nullopt;
  communicator.all_reduce(*sums)->wait();
  const at::Tensor on_host = sums->to(at::kCPU);
  const double* found = on_host.const_data_ptr<double>();
  const auto samples = static_cast<int64_t>(found[3]);
  EvaluationResult result{.loss = found[0] / (found[4] > 0 ? found[4] : found[3]),
                          .samples = samples,
                          .left_out = planned_samples(data.schedule()) - samples,
                          .wall_s = seconds_since(started),
                          .trained_on = plan.evaluation->trained_on};
  if (task.metrics() == Metrics::accuracy) {
    result.top1_pct = 100 * found[1] / found[3];
    result.top5_pct = 100 * found[2] / found[3];
  } else if (task.metrics() == Metrics::perplexity) {
    result.perplexity = std::exp(result.loss);
  }
  return result;
}

std::optional<Goal> goal_of(const TargetConfig& config) {
  if (config.top1_pct) return Goal{"top1_pct", *config.top1_pct, /*at_least=*/true};
  if (config.loss) return Goal{"loss", *config.loss};
  if (config.perplexity) return Goal{"perplexity", *config.perplexity};
  return std::nullopt;
}

std::optional<double> measured_for(const Goal& goal, const EvaluationResult& result) {
  const auto of = [&](const auto& numbers) {
    if (goal.metric == "top1_pct") return numbers.top1_pct;
    return goal.metric == "loss" ? std::optional(numbers.loss) : numbers.perplexity;
  };
  return result.average ? of(*result.average) : of(result);
}

bool reached(const std::optional<Goal>& goal, const EvaluationResult& result) {
  if (!goal) return false;
  const auto value = measured_for(*goal, result);
  return value && (goal->at_least ? *value >= goal->value : *value <= goal->value);
}

std::string text(const Goal& goal) {
  return fmt::format("{} of at {} {}", goal.metric, goal.at_least ? "least" : "most", goal.value);
}

}  // namespace trainopt
