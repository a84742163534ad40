#include "model/transformer_block.h"

#include "device/tensor.h"
#include "model/builder.h"
#include "model/layers.h"

namespace trainopt {

TransformerBlock::TransformerBlock(Builder& builder, Parts parts)
    : parts_(std::move(parts)), operations_(builder.operations()) {
  ++builder.layers().gelus;
}

at::Tensor TransformerBlock::forward(const at::Tensor& input, const ForwardContext& context) {
  const auto& [name, ln_1, attention, ln_2, mlp_in, mlp_out, gelu, rate, drops_hidden] = parts_;
  const auto dropped = [&, p = rate](const at::Tensor& values) { return dropout(values, p, context); };
  const at::Tensor normalised = operations_->layer_norm->layer_norm(input, ln_1);
  const auto attended =
      operations_->layer_norm->add_layer_norm(input, dropped(attention.forward(normalised, context)), ln_2);
  const at::Tensor hidden = operations_->gelu->linear_gelu(attended.normalised, mlp_in, gelu);
  return attended.sum + dropped(mlp_out.forward(drops_hidden ? dropped(hidden) : hidden));
}

SampleShape TransformerBlock::shape_after(const SampleShape& input, double& flops) const {
  return parts_.mlp_out.shape_after(parts_.mlp_in.shape_after(parts_.attention.shape_after(input, flops), flops),
                                    flops);
}

SelfAttention::SelfAttention(Builder& builder, Linear in, Linear out, int64_t heads, const AttentionOptions& options)
    : in_(std::move(in)), out_(std::move(out)), heads_(heads), options_(options), operations_(builder.operations()) {
  ++builder.layers().attentions;
}

at::Tensor SelfAttention::forward(const at::Tensor& input, const ForwardContext& context) const {
  const std::vector<at::Tensor> parts = in_.forward(input).split(input.size(2), 2);
  const auto by_head = [&](const at::Tensor& part) { return part.unflatten(2, {heads_, -1}).transpose(1, 2); };
  const at::Tensor attended =
      operations_->attention->attention(by_head(parts[0]), by_head(parts[1]), by_head(parts[2]), options_, context);
  return out_.forward(attended.transpose(1, 2).flatten(2));
}

SampleShape SelfAttention::shape_after(const SampleShape& input, double& flops) const {
  const auto tokens = static_cast<double>(input[0]), width = static_cast<double>(input[1]);
  in_.shape_after(input, flops);
  flops += 2 * 2 * tokens * tokens * width;  // scores, and the values that they weigh
  return out_.shape_after(input, flops);
}

}  // namespace trainopt
