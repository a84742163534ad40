#include "model/attention_operations.h"

#include "device/tensor.h"

namespace trainopt {

at::Tensor PlainAttentionOperations::attention(const at::Tensor& query, const at::Tensor& key,
                                               const at::Tensor& value) const {
  // For meta tensors libtorch would choose the implementation that stores the scores of all pairs of tokens. On real
  // devices it prefers one that does not, and its tensors are those of this one.
  if (query.is_meta()) return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(query, key, value));
  return at::scaled_dot_product_attention(query, key, value);
}

}  // namespace trainopt
