#include "kernels/layer_norm/layer_norm.h"

#include "device/differentiable.h"
#include "device/tensor.h"

#include <ATen/record_function.h>

namespace trainopt::kernels {
namespace {

/// The tensors saved for backward, in this order.
enum Saved : size_t { kSum, kMean, kRstd, kWeight };

std::vector<at::Tensor> saved_for_backward(const LayerNormResult& result, const at::Tensor& weight) {
  return {result.sum, result.by.mean, result.by.rstd, weight};
}

LayerNormGradients gradients_of(const LayerNormKernels& kernels, const std::vector<at::Tensor>& saved,
                                const at::Tensor& of_normalized, const at::Tensor& of_sum, at::ScalarType residual,
                                std::optional<at::ScalarType> branch) {
  RECORD_FUNCTION(kLayerNormGradientLabel, std::vector<c10::IValue>());
  return kernels.backward({of_normalized.contiguous(), of_sum.defined() ? of_sum.contiguous() : of_sum}, saved[kSum],
                          {saved[kMean], saved[kRstd]}, saved[kWeight], residual, branch);
}

}  // namespace

AddedAndNormalized add_layer_norm(const at::Tensor& residual, const at::Tensor& branch, const LayerNormParameters& norm,
                                  at::ScalarType type, const LayerNormKernels& kernels) {
  const auto forward = [&](std::vector<at::Tensor>& saved) -> std::vector<at::Tensor> {
    RECORD_FUNCTION(kLayerNormLabel, std::vector<c10::IValue>());
    const LayerNormResult result = kernels.forward(residual.contiguous(), branch.contiguous(), norm, type);
    saved = saved_for_backward(result, norm.weight);
    return {result.sum, result.normalized};
  };
  const auto backward = [&kernels, residual = residual.scalar_type(),
                         branch = branch.scalar_type()](const BackwardCall& call) -> std::vector<at::Tensor> {
    const at::Tensor &of_sum = call.gradients[0], &of_normalized = call.gradients[1];
    if (!of_normalized.defined()) return {of_sum.to(residual), of_sum.to(branch), {}, {}};
    const auto result = gradients_of(kernels, call.saved, of_normalized, of_sum, residual, branch);
    return {result.of_residual, result.of_branch, result.of_weight, result.of_bias};
  };
  const auto outputs = differentiable_outputs({residual, branch, norm.weight, norm.bias}, forward, backward);
  return {outputs[0], outputs[1]};
}

at::Tensor layer_norm(const at::Tensor& input, const LayerNormParameters& norm, at::ScalarType type,
                      const LayerNormKernels& kernels) {
  const auto forward = [&](std::vector<at::Tensor>& saved) {
    RECORD_FUNCTION(kLayerNormLabel, std::vector<c10::IValue>());
    const LayerNormResult result = kernels.forward(input.contiguous(), {}, norm, type);
    saved = saved_for_backward(result, norm.weight);
    return result.normalized;
  };
  const auto backward = [&kernels, type = input.scalar_type()](const BackwardCall& call) -> std::vector<at::Tensor> {
    const auto result = gradients_of(kernels, call.saved, call.gradient, {}, type, std::nullopt);
    return {result.of_residual, result.of_weight, result.of_bias};
  };
  return differentiable({input, norm.weight, norm.bias}, forward, backward);
}

}  // namespace trainopt::kernels
