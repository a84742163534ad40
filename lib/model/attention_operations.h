// The attention of transformers.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainopt {

/// Tensors are batch × heads × tokens × head width, of one type; the values of a head are contiguous in memory.
class AttentionOperations {
 public:
  virtual ~AttentionOperations() = default;
  /// softmax(query · keyᵀ ÷ √(head width)) · value, for each sample and head. Every token attends to all.
  virtual at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) const = 0;
};

/// libtorch's, which chooses among its implementations by device, type and sizes.
class PlainAttentionOperations : public AttentionOperations {
 public:
  at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) const override;
};

}  // namespace trainopt
