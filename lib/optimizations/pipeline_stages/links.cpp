#include "optimizations/pipeline_stages/links.h"

#include "base/clock.h"
#include "device/differentiable.h"
#include "device/tensor.h"

namespace trainopt::pipeline_stages {
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
