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
  context.parameters->when_complete([&stages, ties, store = &*context.parameters](GradientMemory& memory) {
    memory.stages = &stages;
    for (const Tie& tie : ties) {
      // A stage may use the parameter without gradient, under no_grad; the other one waits for its part all the same.
      if (at::Tensor& gradient = memory.tensors[tie.parameter]; !gradient.defined()) {
        at::Tensor parameter = store->parameters()[tie.parameter].second;
        gradient = at::zeros_like(parameter, parameter.options().requires_grad(false));
        parameter.mutable_grad() = gradient;
      }
      add_over(stages, tie, memory.tensors[tie.parameter]);
      if (tie.stage > tie.other) memory.counted_elsewhere.push_back(tie.parameter);
    }
  });
}

namespace {

/// The types of what a stage receives, the activation first, if the stage before does not say otherwise.
std::vector<at::ScalarType> usual_types(const StageInput& input) {
  std::vector<at::ScalarType> types{at::kFloat};
  for (const PassedValue& value : input.beside) types.push_back(value.type);
  return types;
}

/// A tensor of any type as its bytes: not every communicator knows truth values.
at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.detach().contiguous().view({-1}).view(at::kByte); }

/// The tensors that have to be sent.
std::vector<PassedValue> tensors_of(const std::vector<PassedValue>& values) {
  std::vector<PassedValue> tensors;
  for (const PassedValue& value : values)
    if (!value.is_input && value.number.isNone()) tensors.push_back(value);
  return tensors;
}

/// What units before this place leave to later ones, for a model's input of these sizes.
using PassedHere = std::function<std::vector<PassedValue>(at::IntArrayRef input, bool training)>;

class ReceivingUnit : public WrappedUnit {
 public:
  /// `shape`: of one sample of the input.
  ReceivingUnit(std::unique_ptr<Unit> inner, SampleShape shape, bool of_text, PassedHere passed,
                std::shared_ptr<StageLinks> links)
      : WrappedUnit(std::move(inner)),
        shape_(std::move(shape)),
        of_text_(of_text),
        passed_(std::move(passed)),
        links_(std::move(links)) {}

  /// `batch`: the model's input.
  at::Tensor forward(const at::Tensor& batch, const ForwardContext& context) override {
    const at::Tensor received = receive(batch, context);
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
  /// The activation. Puts the values beside it where units look for them.
  at::Tensor receive(const at::Tensor& batch, const ForwardContext& context) {
    StageInput input{.sizes = {batch.size(0)}, .has_gradient = at::GradMode::is_enabled()};
    input.sizes.insert(input.sizes.end(), shape_.begin(), shape_.end());
    if (of_text_) input.sizes[1] = batch.size(1);  // texts differ in length
    const std::vector<PassedValue> passed = passed_(batch.sizes(), context.training);
    input.beside = tensors_of(passed);
    auto [activation, tensors] = links_->receive(input, batch.device());
    auto& values = context.side->values;
    size_t next = 0;
    for (const PassedValue& each : passed) {
      if (values.size() <= each.index) values.resize(each.index + 1);
      values[each.index] = each.is_input           ? c10::IValue(batch)
                           : !each.number.isNone() ? each.number
                                                   : c10::IValue(std::move(tensors[next++]));
    }
    return activation;
  }

  SampleShape shape_;
  bool of_text_;
  PassedHere passed_;
  std::shared_ptr<StageLinks> links_;
};

class SendingUnit : public WrappedUnit {
 public:
  /// `beside`: the side values to send, by their index, in evaluation and in training.
  SendingUnit(std::unique_ptr<Unit> inner, std::array<std::vector<size_t>, 2> beside, std::shared_ptr<StageLinks> links)
      : WrappedUnit(std::move(inner)), beside_(std::move(beside)), links_(std::move(links)) {}

  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    const at::Tensor output = inner_->forward(input, context).contiguous();
    const bool has_gradient = at::GradMode::is_enabled();
    const auto pass_on = [&] {
      StageOutput sent{.activation = output.detach(), .has_gradient = has_gradient};
      for (const size_t index : beside_[context.training])
        sent.beside.push_back(context.side->values.at(index).toTensor());
      links_->send(sent);
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
  std::array<std::vector<size_t>, 2> beside_;
  std::shared_ptr<StageLinks> links_;
};

}  // namespace

void StageLinks::send(const StageOutput& output) {
  Communicator& forward = groups_.stages_forward();
  if (!std::exchange(announced_[output.has_gradient], true)) {
    std::vector<int64_t> types{static_cast<int64_t>(output.activation.scalar_type()) + 1};
    for (const at::Tensor& each : output.beside) types.push_back(static_cast<int64_t>(each.scalar_type()) + 1);
    forward.send(at::tensor(types, at::kLong).to(output.activation.device()), stage_ + 1)->wait();
  }
  Sent sent;
  const auto post = [&](const at::Tensor& data) {
    sent.data.push_back(data);
    sent.exchanges.push_back(forward.send(data, stage_ + 1));
  };
  post(output.activation);
  for (const at::Tensor& each : output.beside) post(as_bytes(each));
  if (output.has_gradient) {
    activations_.push_back(std::move(sent));
    return;
  }
  // No gradient will say that the next stage has it, and there may be thousands of them before finish().
  if (const auto before = std::exchange(evaluated_, std::move(sent))) wait(*before);
}

std::pair<at::Tensor, std::vector<at::Tensor>> StageLinks::receive(const StageInput& input, at::Device device) {
  Communicator& forward = groups_.stages_forward();
  std::vector<at::ScalarType>& types = received_types_[input.has_gradient];
  if (types.empty()) {
    types = usual_types(input);
    const at::Tensor sent = at::zeros({std::ssize(types)}, at::TensorOptions(device).dtype(at::kLong));
    wait(*forward.receive(sent, stage_ - 1));
    // 0: a communicator that delivers only zeros (make_free_communicator()) means the usual ones.
    for (size_t i = 0; i < types.size() && !device.is_meta(); ++i)
      if (const auto code = sent[static_cast<int64_t>(i)].item<int64_t>(); code > 0)
        types[i] = static_cast<at::ScalarType>(code - 1);
  }
  const auto received = [&](at::Tensor tensor, const at::Tensor& data) {
    wait(*forward.receive(data, stage_ - 1));
    return tensor;
  };
  const auto empty = [&](const std::vector<int64_t>& sizes, size_t i) {
    return at::empty(sizes, at::TensorOptions(device).dtype(types[i]));
  };
  const at::Tensor activation = empty(input.sizes, 0);
  std::pair<at::Tensor, std::vector<at::Tensor>> all{received(activation, activation), {}};
  for (size_t i = 0; i < input.beside.size(); ++i) {
    const at::Tensor beside = empty(input.beside[i].sizes, i + 1);
    all.second.push_back(received(beside, as_bytes(beside)));
  }
  return all;
}

void StageLinks::send_gradient(const at::Tensor& gradient) {
  Sent& sent = gradients_.emplace_back(Sent{{gradient}, {}});
  sent.exchanges.push_back(groups_.stages_backward().send(gradient, stage_ - 1));
}

at::Tensor StageLinks::receive_gradient(const at::Tensor& activation) {
  at::Tensor gradient = at::empty_like(activation);
  wait(*groups_.stages_backward().receive(gradient, stage_ + 1));
  // The next stage has long received what it sends the gradient of.
  for (const auto& exchange : activations_.front().exchanges) exchange->wait();
  activations_.pop_front();
  return gradient;
}

void StageLinks::finish() {
  for (auto* all : {&activations_, &gradients_}) {
    for (const Sent& sent : *all) wait(sent);
    all->clear();
  }
  if (evaluated_) wait(*evaluated_);
  evaluated_.reset();
}

void StageLinks::wait(Exchange& exchange) {
  const auto began = Clock::now();
  exchange.wait();
  waited_ms_ += milliseconds_between(began, Clock::now());
}
void StageLinks::wait(const Sent& sent) {
  for (const auto& exchange : sent.exchanges) wait(*exchange);
}

void link_stages(Model& model, const StagePlan& plan, const std::shared_ptr<StageLinks>& links) {
  std::vector<int64_t> sample = model.shapes().front();
  const bool of_text = sample.size() == 1;
  sample.insert(sample.begin(), 1);
  size_t next = 0;
  model.wrap_units([&](std::unique_ptr<Unit> unit) -> std::unique_ptr<Unit> {
    const size_t index = next++;
    if (index == plan.held().first && !plan.is_first()) {
      const auto passed = [index, all = model.passed_values()](at::IntArrayRef input, bool training) {
        return all(index, input, training);
      };
      unit = std::make_unique<ReceivingUnit>(std::move(unit), model.shapes()[index], of_text, passed, links);
    }
    if (index + 1 == plan.held().end && !plan.is_last()) {
      std::array<std::vector<size_t>, 2> beside;
      for (const bool training : {false, true})
        for (const PassedValue& each : tensors_of(model.passed_values()(index + 1, sample, training)))
          beside[training].push_back(each.index);
      unit = std::make_unique<SendingUnit>(std::move(unit), std::move(beside), links);
    }
    return unit;
  });
}

}  // namespace trainopt::pipeline_stages
