// The block of pre-norm transformers (Vaswani et al. 2017; Radford et al. 2019), for vit and gpt2.
#pragma once

#include "model/layers.h"
#include "model/operations.h"

namespace trainopt {

// Multi-head attention of a sequence with itself.

/// batch × tokens × width in and out. `in` computes queries, keys and values, one after the other, each divided into
/// the heads.
class SelfAttention {
 public:
  /// `in`: width → 3 · width; `out`: width → width.
  SelfAttention(Builder& builder, Linear in, Linear out, int64_t heads, const AttentionOptions& options);
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) const;
  /// Counts the scores of all pairs of tokens, also with a causal mask.
  SampleShape shape_after(const SampleShape& input, double& flops) const;

 private:
  Linear in_, out_;
  int64_t heads_;
  AttentionOptions options_;
  std::shared_ptr<const Operations> operations_;
};

/// batch × tokens × width in and out: x ← x + attention(ln_1(x)), then x ← x + mlp(ln_2(x)). Dropout acts on both
/// branches.
class TransformerBlock : public Unit {
 public:
  /// In the order in which a braced list creates the parameters.
  struct Parts {
    std::string name;
    LayerNorm ln_1;
    SelfAttention attention;
    LayerNorm ln_2;
    Linear mlp_in, mlp_out;
    GeluForm gelu;
    double dropout;
    bool drops_hidden = false;  ///< dropout acts within the MLP, too
  };
  TransformerBlock(Builder& builder, Parts parts);

  std::string name() const override { return parts_.name; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override;
  SampleShape shape_after(const SampleShape& input, double& flops) const override;
  bool ends_in_sum() const override { return true; }

 private:
  Parts parts_;
  std::shared_ptr<const Operations> operations_;
};

}  // namespace trainopt
