#include "model/language_head_operations.h"

#include "device/tensor.h"

namespace trainopt {

at::Tensor PlainLanguageHeadOperations::loss(const at::Tensor& hidden, const at::Tensor& weight,
                                             const at::Tensor& target) const {
  const at::Tensor logits = at::linear(hidden, weight).flatten(0, 1);
  const at::Tensor wide = logits.to(at::promoteTypes(logits.scalar_type(), at::kFloat));
  return at::cross_entropy_loss(wide, target.flatten(), {}, at::Reduction::Mean, kIgnoredTarget);
}

}  // namespace trainopt
