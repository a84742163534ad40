// The block of pre-norm transformers (Vaswani et al. 2017; Radford et al. 2019), for vit and gpt2.
#pragma once

#include "model/gelu_operations.h"
#include "model/self_attention.h"

namespace trainopt {

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
  SampleShape trace(const SampleShape& input, double& flops) const override;
  bool ends_in_sum() const override { return true; }

 private:
  Parts parts_;
  std::shared_ptr<const Operations> operations_;
};

}  // namespace trainopt
