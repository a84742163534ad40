#include "optimizations/pipeline_stages/pipeline_runner.h"

#include "base/clock.h"
#include "base/error.h"
#include "device/tensor.h"
#include "train/parameter_store.h"
#include "train/plan.h"

#include <algorithm>
#include <deque>
#include <limits>

namespace trainopt::pipeline_stages {
namespace {

Batch copy_of(Batch batch) {
  for (const auto field : kBatchFields)
    if (at::Tensor& tensor = batch.*field; tensor.defined()) tensor = tensor.clone();
  return batch;
}

class PipelineRunner : public StepRunner {
 public:
  explicit PipelineRunner(RunnerOptions options)
      : warm_up_(static_cast<size_t>(options.warm_up)),
        outlives_batch_(options.accumulates && options.warm_up > 0),
        links_(std::move(options.links)) {}

  at::Tensor micro_step(const StepBody& body, const Batch& micro) override {
    if (micro.is_first) micro_batches_ = 0;
    ++micro_batches_;
    in_flight_.push_back(body.forward(outlives_batch_ ? copy_of(micro) : micro));
    const at::Tensor loss = in_flight_.back().detach();
    most_in_flight_ = std::max(most_in_flight_, in_flight_.size());
    while (in_flight_.size() > (micro.is_last ? 0 : warm_up_)) {
      const at::Tensor oldest = std::move(in_flight_.front());
      in_flight_.pop_front();
      body.backward(oldest, micro.is_last && in_flight_.empty());
    }
    return loss;
  }

  at::Tensor update_step(const StepBody& body) override {
    if (links_) links_->finish();
    at::Tensor norm = body.update_step();
    const auto now = Clock::now();
    const double waited_ms = links_ ? links_->take_waited_ms() : 0;
    if (ended_) {  // the first step's time includes waiting for the others to start
      waited_ms_ += waited_ms;
      steps_ms_ += milliseconds_between(*ended_, now);
    }
    ended_ = now;
    return norm;
  }

  bool drop_state(bool) override {
    in_flight_.clear();
    return false;
  }

  void report(StepTrace& trace) const override {
    trace.counts[kWaitedLabel] = waited_ms_;
    trace.counts[kStepsLabel] = steps_ms_;
    trace.counts[kInFlightLabel] = static_cast<double>(most_in_flight_);
    trace.counts[kMicroBatchesLabel] = static_cast<double>(micro_batches_);
  }

 private:
  size_t warm_up_;
  bool outlives_batch_;  ///< backward may come after the loader has filled the batch's memory again
  std::shared_ptr<StageLinks> links_;
  std::deque<at::Tensor> in_flight_;  ///< losses with their graphs, oldest first
  size_t most_in_flight_ = 0;
  int64_t micro_batches_ = 0;
  std::optional<Clock::time_point> ended_;
  double waited_ms_ = 0, steps_ms_ = 0;
};

/// A parameter that this stage and another one hold.
struct Tie {
  size_t parameter;  ///< index in the store
  int64_t stage, other;
};

std::vector<Tie> ties_of(const Model& model, const ParameterStore& parameters, const StagePlan& plan) {
  std::vector<Tie> ties;
  for (const StateEntry& entry : model.entries())
    for (const size_t unit : entry.also_in) {
      const int64_t owner = plan.stage_of(entry.unit), user = plan.stage_of(unit);
      if (owner == user || (owner != plan.stage && user != plan.stage)) continue;
      const auto& all = parameters.parameters();
      const auto found = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.first == entry.name; });
      TRAINOPT_CHECK(found != all.end());
      ties.push_back({static_cast<size_t>(found - all.begin()), plan.stage, plan.stage == owner ? user : owner});
    }
  return ties;
}

/// Both stages end with the sum in the same bits. The earlier one sends first, because two messages that pass each
/// other would each wait for the other one on a GPU.
void add_over(Communicator& stages, const Tie& tie, const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  const at::Tensor mine = gradient.contiguous(), theirs = at::empty_like(mine);
  const auto send = [&] { return stages.send(mine, tie.other); };
  const auto receive = [&] { return stages.receive(theirs, tie.other); };
  const bool earlier = tie.stage < tie.other;
  const auto first = earlier ? send() : receive();
  const auto second = earlier ? receive() : send();
  first->wait();
  second->wait();
  gradient.copy_(earlier ? mine + theirs : theirs + mine);
}

}  // namespace

int64_t warm_up(PipelineSchedule schedule, int64_t stages, int64_t stage) {
  return schedule == PipelineSchedule::gpipe ? std::numeric_limits<int64_t>::max() : stages - 1 - stage;
}

std::unique_ptr<StepRunner> make_pipeline_runner(RunnerOptions options) {
  return std::make_unique<PipelineRunner>(std::move(options));
}

void join_stages(const BuildContext& context) {
  Communicator& stages = context.groups->stages_forward();
  const std::vector<Tie> ties = ties_of(*context.model, *context.parameters, context.plan.stages);
  context.parameters->when_complete([&stages, ties](GradientMemory& memory) {
    memory.stages = &stages;
    for (const Tie& tie : ties) {
      add_over(stages, tie, memory.tensors[tie.parameter]);
      if (tie.stage > tie.other) memory.counted_elsewhere.push_back(tie.parameter);
    }
  });
}

}  // namespace trainopt::pipeline_stages
