#include "kernels/attention/attention.h"

#include "device/differentiable.h"

#include <ATen/record_function.h>

namespace trainopt::kernels {
namespace {

at::Tensor with_contiguous_heads(const at::Tensor& tensor) {
  return tensor.stride(-1) == 1 ? tensor : tensor.contiguous();
}

}  // namespace

at::Tensor attention(const AttentionInputs& inputs, const AttentionKernels& kernels) {
  // The tensors saved for backward, in this order.
  enum Saved : size_t { kQuery, kKey, kValue, kLogSums };
  const auto forward = [&](std::vector<at::Tensor>& saved) {
    // The inputs let a step's observer see their type.
    RECORD_FUNCTION(kAttentionLabel, std::vector<c10::IValue>({inputs.query, inputs.key, inputs.value}));
    const at::Tensor query = with_contiguous_heads(inputs.query), key = with_contiguous_heads(inputs.key),
                     value = with_contiguous_heads(inputs.value);
    const AttentionResult result = kernels.forward({query, key, value, inputs.causal});
    saved = {query, key, value, result.log_sums};
    return result.output;
  };
  const auto backward = [&kernels, causal = inputs.causal](const BackwardCall& call) -> std::vector<at::Tensor> {
    const auto& saved = call.saved;
    RECORD_FUNCTION(kAttentionGradientLabel, std::vector<c10::IValue>({saved[kQuery], saved[kKey], saved[kValue]}));
    const auto result = kernels.backward(with_contiguous_heads(call.gradient),
                                         {saved[kQuery], saved[kKey], saved[kValue], causal}, saved[kLogSums]);
    return {result.of_query, result.of_key, result.of_value};
  };
  return differentiable({inputs.query, inputs.key, inputs.value}, forward, backward);
}

}  // namespace trainopt::kernels
