#include "model/layers.h"

#include "base/error.h"
#include "device/tensor.h"
#include "model/builder.h"

namespace trainopt {

Conv2d::Conv2d(Builder& builder, const std::string& name, const Shape& shape)
    : Conv2d(builder, name, shape,
             InitialValues::kaiming_normal(shape.out / shape.groups * shape.kernel * shape.kernel)) {}

Conv2d::Conv2d(Builder& builder, const std::string& name, const Shape& shape, const InitialValues& values)
    : weight(builder.parameter(name + ".weight", {shape.out, shape.in / shape.groups, shape.kernel, shape.kernel},
                               values)),
      copy_(builder.copy_of(name + ".weight")),
      shape_(shape),
      operations_(builder.operations()) {}

at::Tensor Conv2d::forward(const at::Tensor& input) const {
  return operations_->convolution->forward(shape_, input, as_autocast(weight, copy_));
}

SampleShape Conv2d::shape_after(const SampleShape& input, double& flops) const {
  TRAINOPT_CHECK_EQUAL(input.size(), 3u);
  TRAINOPT_CHECK_EQUAL(input[0], shape_.in);
  const auto size = [&](int64_t in) { return (in + 2 * shape_.padding - shape_.kernel) / shape_.stride + 1; };
  const SampleShape output{shape_.out, size(input[1]), size(input[2])};
  flops += 2.0 * static_cast<double>(output[1] * output[2]) * static_cast<double>(weight.numel());
  return output;
}

BatchNorm2d::BatchNorm2d(Builder& builder, const std::string& name, int64_t channels)
    : weight(builder.parameter(name + ".weight", {channels}, InitialValues::constant(1), ParameterKind::norm)),
      bias(builder.parameter(name + ".bias", {channels}, InitialValues::constant(0), ParameterKind::norm)),
      running_mean(builder.buffer(name + ".running_mean", {channels}, at::kFloat, 0)),
      running_var(builder.buffer(name + ".running_var", {channels}, at::kFloat, 1)),
      num_batches_tracked(builder.buffer(name + ".num_batches_tracked", {}, at::kLong, 0)) {}

LayerNorm::LayerNorm(Builder& builder, const std::string& name, int64_t width, double epsilon_)
    : weight(builder.parameter(name + ".weight", {width}, InitialValues::constant(1), ParameterKind::norm)),
      bias(builder.parameter(name + ".bias", {width}, InitialValues::constant(0), ParameterKind::norm)),
      epsilon(epsilon_) {
  ++builder.layers().layer_norms;
}

Linear::Linear(Builder& builder, const std::string& name, int64_t in, int64_t out)
    : Linear(builder, name + ".", in, out, {InitialValues::torch_linear(in), InitialValues::torch_linear(in)}) {}

Linear::Linear(Builder& builder, const std::string& prefix, int64_t in, int64_t out, const Values& values)
    : weight(builder.parameter(prefix + "weight", {out, in}, values.weight)),
      bias(builder.parameter(prefix + "bias", {out}, values.bias)),
      weight_copy_(builder.copy_of(prefix + "weight")),
      bias_copy_(builder.copy_of(prefix + "bias")),
      operations_(builder.operations()) {}

Linear::Linear(Tensors tensors, std::shared_ptr<const Operations> operations)
    : weight(std::move(tensors.weight)),
      bias(std::move(tensors.bias)),
      transposed(tensors.transposed),
      weight_copy_(std::move(tensors.weight_copy)),
      bias_copy_(std::move(tensors.bias_copy)),
      operations_(std::move(operations)) {}

at::Tensor Linear::matrix() const {
  const at::Tensor stored = as_autocast(weight, weight_copy_);
  return transposed ? stored.t() : stored;
}

at::Tensor Linear::forward(const at::Tensor& input) const {
  return operations_->linear->linear(input,
                                     {.weight = matrix(), .bias = as_autocast(bias, bias_copy_), .parameter = weight});
}

at::Tensor Linear::product(const at::Tensor& input) const {
  return operations_->linear->linear(input, {.weight = matrix(), .bias = {}, .parameter = weight});
}

SampleShape Linear::shape_after(const SampleShape& input, double& flops) const {
  TRAINOPT_CHECK_EQUAL(input.back(), weight.size(1));
  SampleShape output = input;
  output.back() = weight.size(0);
  const int64_t rows = c10::multiply_integers(output) / weight.size(0);
  flops += 2.0 * static_cast<double>(rows) * static_cast<double>(weight.numel());
  return output;
}

at::Tensor dropout(const at::Tensor& input, double rate, const ForwardContext& context) {
  if (!context.training || rate == 0) return input;
  if (rate == 1) return input * 0;
  const at::Tensor mask = at::empty_like(input).bernoulli_(1 - rate, context.generator);
  return at::mul(input, mask).div_(1 - rate);  // scaled last: a 16-bit mask would round 1 / (1 - rate)
}

}  // namespace trainopt
