// The end of a language model: logits of the next token, and their loss.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainopt {

/// The target of padding, which has no loss; torch's default.
inline constexpr int64_t kIgnoredTarget = -100;

class LanguageHeadOperations {
 public:
  virtual ~LanguageHeadOperations() = default;
  /// Softmax cross-entropy of the logits hidden · weightᵀ: 0-dim float32, the mean over the targets that are not
  /// kIgnoredTarget. `hidden`: batch × tokens × width; `weight`: vocabulary × width, the parameter or its 16-bit copy;
  /// `target`: int64 batch × tokens.
  virtual at::Tensor loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& target) const = 0;
};

/// ATen operations, one by one: all logits exist at once, and once more as float32 under autocast.
class PlainLanguageHeadOperations : public LanguageHeadOperations {
 public:
  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& target) const override;
};

}  // namespace trainopt
