// Multi-head attention of a sequence with itself.
#pragma once

#include "model/attention_operations.h"
#include "model/layers.h"

namespace trainopt {

/// batch × tokens × width in and out. `in` computes queries, keys and values, one after the other, each divided into
/// the heads.
class SelfAttention {
 public:
  /// `in`: width → 3 · width; `out`: width → width.
  SelfAttention(Builder& builder, Linear in, Linear out, int64_t heads, const AttentionOptions& options);
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) const;
  /// Counts the scores of all pairs of tokens, also with a causal mask.
  SampleShape trace(const SampleShape& input, double& flops) const;

 private:
  Linear in_, out_;
  int64_t heads_;
  AttentionOptions options_;
  std::shared_ptr<const Operations> operations_;
};

}  // namespace trainopt
