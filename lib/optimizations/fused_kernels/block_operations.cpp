#include "optimizations/fused_kernels/block_operations.h"

#include "base/error.h"
#include "optimizations/fused_kernels/kept_kernels.h"
#include "optimizations/fused_kernels/labels.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

namespace trainopt::fused_kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor nhwc(const at::Tensor& tensor) { return tensor.contiguous(at::MemoryFormat::ChannelsLast); }

/// Batch-norm as it is known before, from its running statistics.
Line known(const BatchNorm2d& norm) {
  TRAINOPT_CHECK(!at::GradMode::is_enabled());  // no gradient would pass
  return line_of(norm, norm.running_mean, norm.running_var);
}

/// Of values that a channel has.
int64_t count_of(const at::Tensor& x) { return x.numel() / x.size(1); }

/// What backward needs besides x, as it is kept; behind the pool, the last two instead of the shift and y.
enum Kept : size_t { kX, kMean, kInverse, kScale, kShift, kY, kPlaces = kShift, kChosen = kY };

class Normalize : public torch::autograd::Function<Normalize> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& /*weight*/,
                            const at::Tensor& /*bias*/, const std::optional<at::Tensor>& residual,
                            const BatchNorm2d* norm, bool relu, const NormKernels* kernels) {
    RECORD_FUNCTION(kNormLabel, std::vector<c10::IValue>());
    const at::Tensor x = nhwc(input);
    const Moments moments = kernels->moments(x);
    const Line line = kernels->line(moments, count_of(x), *norm);
    const at::Tensor y = kernels->apply(x, line.scale, line.shift, residual ? nhwc(*residual) : at::Tensor(), relu);
    // Without a residual the mask follows from x again; y is then the next operation's to keep.
    context->save_for_backward(
        {x, moments.mean, line.inverse, line.scale, line.shift, residual && relu ? y : at::Tensor()});
    context->saved_data["relu"] = relu;
    context->saved_data["adds"] = residual.has_value();
    keep_kernels(context, *kernels);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    RECORD_FUNCTION(kNormGradientLabel, std::vector<c10::IValue>());
    const auto kept = context->get_saved_variables();
    const auto& kernels = kept_kernels<NormKernels>(context);
    const bool relu = context->saved_data["relu"].toBool(), adds = context->saved_data["adds"].toBool();
    const at::Tensor &x = kept[kX], gradient = nhwc(gradients[0]);
    at::Tensor g = gradient;
    const GradientSums sums = !relu  ? kernels.sums(gradient, x, kept[kMean])
                              : adds ? kernels.sums_through_output(gradient, kept[kY], x, kept[kMean], g)
                                     : kernels.sums_through_relu(gradient, x, kept[kMean], kept[kScale], kept[kShift]);
    const Coefficients by = kernels.coefficients(sums, {kept[kInverse], kept[kScale], {}}, kept[kMean], count_of(x));
    const at::Tensor of_input = relu && !adds ? kernels.input_gradient_through_relu(gradient, x, kept[kScale], by.of_x,
                                                                                    by.rest, kept[kScale], kept[kShift])
                                              : kernels.input_gradient(g, x, kept[kScale], by.of_x, by.rest);
    return {of_input, by.of_weight, sums.gradient, adds ? g : at::Tensor(), {}, {}, {}};
  }
};

class NormalizeAndPool : public torch::autograd::Function<NormalizeAndPool> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& /*weight*/,
                            const at::Tensor& /*bias*/, const BatchNorm2d* norm, const NormKernels* kernels) {
    RECORD_FUNCTION(kNormLabel, std::vector<c10::IValue>());
    const at::Tensor x = nhwc(input);
    const Moments moments = kernels->moments(x);
    const Line line = kernels->line(moments, count_of(x), *norm);
    const Pooled pooled = kernels->pool(x, line.scale, line.shift);
    context->save_for_backward({x, moments.mean, line.inverse, line.scale, pooled.places, pooled.chosen});
    keep_kernels(context, *kernels);
    return pooled.values;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    RECORD_FUNCTION(kNormGradientLabel, std::vector<c10::IValue>());
    const auto kept = context->get_saved_variables();
    const auto& kernels = kept_kernels<NormKernels>(context);
    const at::Tensor &x = kept[kX], &places = kept[kPlaces], gradient = nhwc(gradients[0]);
    const GradientSums sums =
        kernels.sums_through_pool(gradient, {.values = {}, .places = places, .chosen = kept[kChosen]}, kept[kMean]);
    const Coefficients by = kernels.coefficients(sums, {kept[kInverse], kept[kScale], {}}, kept[kMean], count_of(x));
    return {kernels.input_gradient_through_pool(gradient, places, x, kept[kScale], by.of_x, by.rest),
            by.of_weight,
            sums.gradient,
            {},
            {}};
  }
};

class AveragePool : public torch::autograd::Function<AveragePool> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const HeadKernels* kernels) {
    RECORD_FUNCTION(kAveragePoolLabel, std::vector<c10::IValue>());
    context->saved_data["height"] = input.size(2);
    context->saved_data["width"] = input.size(3);
    keep_kernels(context, *kernels);
    return kernels->mean(nhwc(input));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    RECORD_FUNCTION(kAveragePoolGradientLabel, std::vector<c10::IValue>());
    const auto& kernels = kept_kernels<HeadKernels>(context);
    return {kernels.mean_gradient(gradients[0].contiguous(), context->saved_data["height"].toInt(),
                                  context->saved_data["width"].toInt()),
            {}};
  }
};

class FusedBlockOperations : public BlockOperations {
 public:
  FusedBlockOperations(const NormKernels& kernels, const HeadKernels& head_kernels)
      : kernels_(kernels), head_kernels_(head_kernels) {}

  at::Tensor batch_norm(const at::Tensor& input, const BatchNorm2d& norm,
                        const ForwardContext& context) const override {
    return normalized(input, norm, std::nullopt, false, context);
  }
  at::Tensor batch_norm_relu(const at::Tensor& input, const BatchNorm2d& norm,
                             const ForwardContext& context) const override {
    return normalized(input, norm, std::nullopt, true, context);
  }
  at::Tensor batch_norm_add_relu(const at::Tensor& input, const BatchNorm2d& norm, const at::Tensor& residual,
                                 const ForwardContext& context) const override {
    return normalized(input, norm, residual, true, context);
  }
  at::Tensor stem_pool(const at::Tensor& input, const BatchNorm2d& norm, const ForwardContext& context) const override {
    if (context.training) return NormalizeAndPool::apply(input, norm.weight, norm.bias, &norm, &kernels_);
    const Line line = known(norm);
    return kernels_.pool(nhwc(input), line.scale, line.shift).values;
  }
  at::Tensor head(const at::Tensor& input, const Linear& linear, const ForwardContext& context) const override {
    return linear.forward(context.training ? AveragePool::apply(input, &head_kernels_)
                                           : head_kernels_.mean(nhwc(input)));
  }

 private:
  at::Tensor normalized(const at::Tensor& input, const BatchNorm2d& norm, const std::optional<at::Tensor>& residual,
                        bool relu, const ForwardContext& context) const {
    if (context.training) return Normalize::apply(input, norm.weight, norm.bias, residual, &norm, relu, &kernels_);
    const Line line = known(norm);
    return kernels_.apply(nhwc(input), line.scale, line.shift, residual ? nhwc(*residual) : at::Tensor(), relu);
  }

  const NormKernels& kernels_;
  const HeadKernels& head_kernels_;
};

}  // namespace

std::shared_ptr<const BlockOperations> make_fused_block_operations(const NormKernels& kernels,
                                                                   const HeadKernels& head_kernels) {
  return std::make_shared<FusedBlockOperations>(kernels, head_kernels);
}

}  // namespace trainopt::fused_kernels
