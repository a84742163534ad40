// The attention of transformers.
#pragma once

#include "model/unit.h"

namespace trainopt {

// RECORD_FUNCTION label of attention with dropout, which no function of libtorch computes from the trainer's generator.
inline constexpr const char* kDroppedAttentionLabel = "trainopt::attention_with_dropout";

struct AttentionOptions {
  bool causal = false;  ///< a token attends to itself and to earlier ones only
  double dropout = 0;   ///< of the softmax's results, in training
};

/// Tensors are batch × heads × tokens × head width, of one type; the values of a head are contiguous in memory.
class AttentionOperations {
 public:
  virtual ~AttentionOperations() = default;
  /// softmax(query · keyᵀ ÷ √(head width)) · value, for each sample and head (Vaswani et al. 2017).
  virtual at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                               const AttentionOptions& options, const ForwardContext& context) const = 0;
};

/// libtorch's, which chooses among its implementations by device, type and sizes. With dropout: one operation after the
/// other, because libtorch's implementations draw from its own generator.
class PlainAttentionOperations : public AttentionOperations {
 public:
  at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const AttentionOptions& options, const ForwardContext& context) const override;
};

}  // namespace trainopt
