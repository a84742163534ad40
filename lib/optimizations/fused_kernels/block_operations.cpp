#include "optimizations/fused_kernels/block_operations.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

namespace trainopt::fused_kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor nhwc(const at::Tensor& tensor) { return tensor.contiguous(at::MemoryFormat::ChannelsLast); }

/// Batch-norm as a factor and an offset by channel.
struct Line {
  at::Tensor scale, shift;
};
Line line_of(const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& mean, const at::Tensor& inverse) {
  const at::Tensor scale = weight * inverse;
  return {scale, bias - mean * scale};
}
at::Tensor inverse_of(const at::Tensor& variance) { return (variance + BatchNorm2d::kEpsilon).rsqrt(); }

Line known(const BatchNorm2d& norm) { return line_of(norm.weight, norm.bias, norm.running_mean, inverse_of(norm.running_var)); }

/// This batch's statistics, which the running ones move towards (their variance is the unbiased one, as torch's).
Moments seen(const NormKernels& kernels, const at::Tensor& x, const BatchNorm2d& norm) {
  const Moments moments = kernels.moments(x);
  const auto count = static_cast<double>(x.numel() / x.size(1));
  at::Tensor batches = norm.num_batches_tracked, mean = norm.running_mean, variance = norm.running_var;
  batches.add_(1);
  mean.lerp_(moments.mean, BatchNorm2d::kMomentum);
  variance.lerp_(moments.variance * (count / (count - 1)), BatchNorm2d::kMomentum);
  return moments;
}

/// The gradient of x is of_gradient · g + of_x · x + rest: through x itself, and through the mean and the variance, which are of x too.
struct InputGradient {
  InputGradient(const GradientSums& sums, const at::Tensor& scale, const at::Tensor& mean, const at::Tensor& inverse, const at::Tensor& x)
      : of_x(scale * inverse.square() * sums.product * (-1.0 / static_cast<double>(x.numel() / x.size(1)))),
        rest(scale * sums.gradient * (-1.0 / static_cast<double>(x.numel() / x.size(1))) - of_x * mean) {}
  at::Tensor of_x, rest;
};

/// What backward needs besides x, as it is kept.
enum Kept : size_t { kX, kMean, kInverse, kScale, kShift, kY };

const NormKernels& kernels_of(AutogradContext* context) { return *reinterpret_cast<const NormKernels*>(context->saved_data["kernels"].toInt()); }
void keep_kernels(AutogradContext* context, const NormKernels& kernels) { context->saved_data["kernels"] = reinterpret_cast<int64_t>(&kernels); }

class Normalize : public torch::autograd::Function<Normalize> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, const std::optional<at::Tensor>& residual,
                            const BatchNorm2d* norm, bool relu, const NormKernels* kernels) {
    RECORD_FUNCTION(kForwardLabel, std::vector<c10::IValue>());
    const at::Tensor x = nhwc(input);
    const Moments moments = seen(*kernels, x, *norm);
    const at::Tensor inverse = inverse_of(moments.variance);
    const Line line = line_of(weight, bias, moments.mean, inverse);
    const at::Tensor y = kernels->apply(x, line.scale, line.shift, residual ? nhwc(*residual) : at::Tensor(), relu);
    // Without a residual the mask follows from x again; y is then the next operation's to keep.
    context->save_for_backward({x, moments.mean, inverse, line.scale, line.shift, residual && relu ? y : at::Tensor()});
    context->saved_data["relu"] = relu;
    context->saved_data["adds"] = residual.has_value();
    keep_kernels(context, *kernels);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    RECORD_FUNCTION(kBackwardLabel, std::vector<c10::IValue>());
    const auto kept = context->get_saved_variables();
    const NormKernels& kernels = kernels_of(context);
    const bool relu = context->saved_data["relu"].toBool(), adds = context->saved_data["adds"].toBool();
    const at::Tensor &x = kept[kX], gradient = nhwc(gradients[0]);
    at::Tensor g = gradient;
    const GradientSums sums = !relu ? kernels.sums(gradient, x, kept[kMean])
                              : adds ? kernels.sums_through_output(gradient, kept[kY], x, kept[kMean], g)
                                     : kernels.sums_through_relu(gradient, x, kept[kMean], kept[kScale], kept[kShift]);
    const InputGradient by(sums, kept[kScale], kept[kMean], kept[kInverse], x);
    const at::Tensor of_input = relu && !adds ? kernels.input_gradient_through_relu(gradient, x, kept[kScale], by.of_x, by.rest, kept[kScale], kept[kShift])
                                              : kernels.input_gradient(g, x, kept[kScale], by.of_x, by.rest);
    return {of_input, sums.product * kept[kInverse], sums.gradient, adds ? g : at::Tensor(), {}, {}, {}};
  }
};

class NormalizeAndPool : public torch::autograd::Function<NormalizeAndPool> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, const BatchNorm2d* norm,
                            const NormKernels* kernels) {
    RECORD_FUNCTION(kForwardLabel, std::vector<c10::IValue>());
    const at::Tensor x = nhwc(input);
    const Moments moments = seen(*kernels, x, *norm);
    const at::Tensor inverse = inverse_of(moments.variance);
    const Line line = line_of(weight, bias, moments.mean, inverse);
    const Pooled pooled = kernels->pool(x, line.scale, line.shift);
    context->save_for_backward({x, moments.mean, inverse, line.scale, pooled.places});
    keep_kernels(context, *kernels);
    return pooled.values;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    RECORD_FUNCTION(kBackwardLabel, std::vector<c10::IValue>());
    const auto kept = context->get_saved_variables();
    const NormKernels& kernels = kernels_of(context);
    const at::Tensor &x = kept[kX], &places = kept[4], gradient = nhwc(gradients[0]);
    const GradientSums sums = kernels.sums_through_pool(gradient, places, x, kept[kMean]);
    const InputGradient by(sums, kept[kScale], kept[kMean], kept[kInverse], x);
    return {kernels.input_gradient_through_pool(gradient, places, x, kept[kScale], by.of_x, by.rest), sums.product * kept[kInverse], sums.gradient, {}, {}};
  }
};

class FusedBlockOperations : public PlainBlockOperations {
 public:
  explicit FusedBlockOperations(const NormKernels& kernels) : kernels_(kernels) {}

  at::Tensor batch_norm(const at::Tensor& input, const BatchNorm2d& norm, const ForwardContext& context) const override {
    return normalized(input, norm, std::nullopt, false, context);
  }
  at::Tensor batch_norm_relu(const at::Tensor& input, const BatchNorm2d& norm, const ForwardContext& context) const override {
    return normalized(input, norm, std::nullopt, true, context);
  }
  at::Tensor batch_norm_add_relu(const at::Tensor& input, const BatchNorm2d& norm, const at::Tensor& residual, const ForwardContext& context) const override {
    return normalized(input, norm, residual, true, context);
  }
  at::Tensor stem_pool(const at::Tensor& input, const BatchNorm2d& norm, const ForwardContext& context) const override {
    if (context.training) return NormalizeAndPool::apply(input, norm.weight, norm.bias, &norm, &kernels_);
    if (at::GradMode::is_enabled()) return PlainBlockOperations::stem_pool(input, norm, context);
    const Line line = known(norm);
    return kernels_.pool(nhwc(input), line.scale, line.shift).values;
  }

 private:
  at::Tensor normalized(const at::Tensor& input, const BatchNorm2d& norm, const std::optional<at::Tensor>& residual, bool relu, const ForwardContext& context) const {
    if (context.training) return Normalize::apply(input, norm.weight, norm.bias, residual, &norm, relu, &kernels_);
    if (at::GradMode::is_enabled()) {   // gradients of an evaluation: nobody trains so, and it works all the same
      if (residual) return PlainBlockOperations::batch_norm_add_relu(input, norm, *residual, context);
      return relu ? PlainBlockOperations::batch_norm_relu(input, norm, context) : PlainBlockOperations::batch_norm(input, norm, context);
    }
    const Line line = known(norm);
    return kernels_.apply(nhwc(input), line.scale, line.shift, residual ? nhwc(*residual) : at::Tensor(), relu);
  }

  const NormKernels& kernels_;
};

}  // namespace

std::shared_ptr<const BlockOperations> make_fused_block_operations(const NormKernels& kernels) { return std::make_shared<FusedBlockOperations>(kernels); }

}  // namespace trainopt::fused_kernels
