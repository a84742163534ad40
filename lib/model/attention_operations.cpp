#include "model/attention_operations.h"

#include "device/backend_settings.h"
#include "device/tensor.h"
#include "model/dropout.h"

#include <ATen/record_function.h>

#include <cmath>
#include <limits>

namespace trainopt {
namespace {

at::Tensor attention_with_dropout(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                  const AttentionOptions& options, const ForwardContext& context) {
  RECORD_FUNCTION(kDroppedAttentionLabel, std::vector<c10::IValue>());
  // Divided before the product: float16 could not hold the scores otherwise.
  at::Tensor scores = at::matmul(query / std::sqrt(static_cast<double>(query.size(-1))), key.transpose(-2, -1));
  if (options.causal) {
    const at::Tensor later = at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool)).triu_(1);
    scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
  }
  return at::matmul(dropout(scores.softmax(-1), options.dropout, context), value);
}

}  // namespace

at::Tensor PlainAttentionOperations::attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                               const AttentionOptions& options, const ForwardContext& context) const {
  if (context.training && options.dropout > 0) return attention_with_dropout(query, key, value, options, context);
  // For meta tensors libtorch would choose the implementation that stores the scores of all pairs of tokens. On real
  // devices it prefers one that does not, and its tensors are those of this one.
  if (query.is_meta() && current_attention_kernel() != AttentionKernel::math)
    return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, 0, options.causal));
  return at::scaled_dot_product_attention(query, key, value, /*attn_mask=*/{}, /*dropout_p=*/0, options.causal);
}

}  // namespace trainopt
