#include "optimizations/pipeline_stages/pipeline_runner.h"

#include "base/clock.h"
#include "base/error.h"
#include "device/differentiable.h"
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

namespace {

/// 0 is float32: a communicator that delivers only zeros (make_free_communicator()) means it, too.
int64_t code_of(at::ScalarType type) { return static_cast<int64_t>(type) - static_cast<int64_t>(at::kFloat); }
at::ScalarType type_of(int64_t code) { return static_cast<at::ScalarType>(code + static_cast<int64_t>(at::kFloat)); }

class ReceivingUnit : public WrappedUnit {
 public:
  /// `shape`: of one sample of the input.
  ReceivingUnit(std::unique_ptr<Unit> inner, SampleShape shape, bool of_text, std::shared_ptr<StageLinks> links)
      : WrappedUnit(std::move(inner)), shape_(std::move(shape)), of_text_(of_text), links_(std::move(links)) {}

  /// `batch`: the model's input, of which only the sizes count here.
  at::Tensor forward(const at::Tensor& batch, const ForwardContext& context) override {
    std::vector<int64_t> sizes{batch.size(0)};
    sizes.insert(sizes.end(), shape_.begin(), shape_.end());
    if (of_text_) sizes[1] = batch.size(1);  // texts differ in length
    const at::Tensor received = links_->receive_activation(sizes, batch.device());
    if (!at::GradMode::is_enabled()) return inner_->forward(received, context);
    const at::Tensor anchor = at::zeros({}, batch.options().dtype(at::kFloat)).requires_grad_();
    const at::Tensor input = differentiable(
        {anchor}, [&](std::vector<at::Tensor>&) { return received; },
        [links = links_](const BackwardCall& call) -> std::vector<at::Tensor> {
          links->send_gradient(call.gradient.contiguous());
          return {at::Tensor()};
        });
    return inner_->forward(input, context);
  }

 private:
  SampleShape shape_;
  bool of_text_;
  std::shared_ptr<StageLinks> links_;
};

class SendingUnit : public WrappedUnit {
 public:
  SendingUnit(std::unique_ptr<Unit> inner, std::shared_ptr<StageLinks> links)
      : WrappedUnit(std::move(inner)), links_(std::move(links)) {}

  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    const at::Tensor output = inner_->forward(input, context).contiguous();
    const bool has_gradient = at::GradMode::is_enabled();
    const auto pass_on = [&] {
      links_->send_activation(output.detach(), has_gradient);
      return at::zeros({}, output.options().dtype(at::kFloat).requires_grad(false));
    };
    if (!has_gradient) return pass_on();
    return differentiable(
        {output}, [&](std::vector<at::Tensor>&) { return pass_on(); },
        [links = links_, like = output.detach()](const BackwardCall&) -> std::vector<at::Tensor> {
          return {links->receive_gradient(like)};
        });
  }

 private:
  std::shared_ptr<StageLinks> links_;
};

}  // namespace

void StageLinks::send_activation(const at::Tensor& activation, bool has_gradient) {
  Communicator& forward = groups_.stages_forward();
  if (!std::exchange(announced_, true)) {
    const at::Tensor type = at::full({1}, code_of(activation.scalar_type()), activation.options().dtype(at::kLong));
    forward.send(type, stage_ + 1)->wait();
  }
  Sent sent{activation, forward.send(activation, stage_ + 1)};
  if (has_gradient) {
    activations_.push_back(std::move(sent));
    return;
  }
  // No gradient will say that the next stage has it, and there may be thousands of them before finish().
  const auto before = std::exchange(evaluated_, std::move(sent));
  if (before) wait(*before->exchange);
}

at::Tensor StageLinks::receive_activation(const std::vector<int64_t>& sizes, at::Device device) {
  Communicator& forward = groups_.stages_forward();
  if (!received_type_) {
    const at::Tensor type = at::zeros({1}, at::TensorOptions(device).dtype(at::kLong));
    wait(*forward.receive(type, stage_ - 1));
    received_type_ = device.is_meta() ? at::kFloat : type_of(type.item<int64_t>());
  }
  at::Tensor activation = at::empty(sizes, at::TensorOptions(device).dtype(*received_type_));
  wait(*forward.receive(activation, stage_ - 1));
  return activation;
}

void StageLinks::send_gradient(const at::Tensor& gradient) {
  gradients_.push_back({gradient, groups_.stages_backward().send(gradient, stage_ - 1)});
}

at::Tensor StageLinks::receive_gradient(const at::Tensor& activation) {
  at::Tensor gradient = at::empty_like(activation);
  wait(*groups_.stages_backward().receive(gradient, stage_ + 1));
  activations_.front().exchange->wait();  // the next stage has long received what it sends the gradient of
  activations_.pop_front();
  return gradient;
}

void StageLinks::finish() {
  for (auto* sent : {&activations_, &gradients_}) {
    for (Sent& one : *sent) wait(*one.exchange);
    sent->clear();
  }
  if (evaluated_) wait(*evaluated_->exchange);
  evaluated_.reset();
}

void StageLinks::wait(Exchange& exchange) {
  const auto began = Clock::now();
  exchange.wait();
  waited_ms_ += milliseconds_between(began, Clock::now());
}

void link_stages(Model& model, const StagePlan& plan, const std::shared_ptr<StageLinks>& links) {
  const bool of_text = model.shapes().front().size() == 1;
  size_t next = 0;
  model.wrap_units([&](std::unique_ptr<Unit> unit) -> std::unique_ptr<Unit> {
    const size_t index = next++;
    if (index == plan.held().first && !plan.is_first())
      unit = std::make_unique<ReceivingUnit>(std::move(unit), model.shapes()[index], of_text, links);
    if (index + 1 == plan.held().end && !plan.is_last()) unit = std::make_unique<SendingUnit>(std::move(unit), links);
    return unit;
  });
}

}  // namespace trainopt::pipeline_stages
