#include "model/transformer_block.h"

#include "device/tensor.h"
#include "model/builder.h"
#include "model/dropout.h"

namespace trainopt {

TransformerBlock::TransformerBlock(Builder& builder, Parts parts)
    : parts_(std::move(parts)), operations_(builder.operations()) {}

at::Tensor TransformerBlock::forward(const at::Tensor& input, const ForwardContext& context) {
  const auto& [name, ln_1, attention, ln_2, mlp_in, mlp_out, gelu, rate, drops_hidden] = parts_;
  const auto dropped = [&, p = rate](const at::Tensor& values) { return dropout(values, p, context); };
  const at::Tensor normalised = operations_->layer_norm->layer_norm(input, ln_1);
  const auto attended =
      operations_->layer_norm->add_layer_norm(input, dropped(attention.forward(normalised, context)), ln_2);
  const at::Tensor hidden = operations_->gelu->linear_gelu(attended.normalised, mlp_in, gelu);
  return attended.sum + dropped(mlp_out.forward(drops_hidden ? dropped(hidden) : hidden));
}

SampleShape TransformerBlock::trace(const SampleShape& input, double& flops) const {
  return parts_.mlp_out.trace(parts_.mlp_in.trace(parts_.attention.trace(input, flops), flops), flops);
}

}  // namespace trainopt
