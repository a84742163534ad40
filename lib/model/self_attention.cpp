#include "model/self_attention.h"

#include "device/tensor.h"
#include "model/builder.h"

namespace trainopt {

SelfAttention::SelfAttention(Builder& builder, Linear in, Linear out, int64_t heads, const AttentionOptions& options)
    : in_(std::move(in)), out_(std::move(out)), heads_(heads), options_(options), operations_(builder.operations()) {}

at::Tensor SelfAttention::forward(const at::Tensor& input, const ForwardContext& context) const {
  const std::vector<at::Tensor> parts = in_.forward(input).split(input.size(2), 2);
  const auto by_head = [&](const at::Tensor& part) { return part.unflatten(2, {heads_, -1}).transpose(1, 2); };
  const at::Tensor attended =
      operations_->attention->attention(by_head(parts[0]), by_head(parts[1]), by_head(parts[2]), options_, context);
  return out_.forward(attended.transpose(1, 2).flatten(2));
}

SampleShape SelfAttention::trace(const SampleShape& input, double& flops) const {
  const auto tokens = static_cast<double>(input[0]), width = static_cast<double>(input[1]);
  in_.trace(input, flops);
  flops += 2 * 2 * tokens * tokens * width;  // scores, and the values that they weigh
  return out_.trace(input, flops);
}

}  // namespace trainopt
