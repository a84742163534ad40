#include "model/operations.h"

#include "device/backend_settings.h"
#include "device/tensor.h"
#include "model/layers.h"

#include <ATen/record_function.h>

#include <cmath>
#include <limits>

namespace trainopt {
namespace {

at::Tensor attention_with_dropout(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                  const AttentionOptions& options, const ForwardContext& context) {
  RECORD_FUNCTION(kDroppedAttentionLabel, std::vector<c10::IValue>());
  // Divided before the product: float16 could not hold the scores otherwise.
  at::Tensor scores = at::matmul(query / std::sqrt(static_cast<double>(query.size(-1))), key.transpose(-2, -1));
  if (options.causal) {
    const at::Tensor later = at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool)).triu_(1);
    scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
  }
  return at::matmul(dropout(scores.softmax(-1), options.dropout, context), value);
}

}  // namespace

at::Tensor PlainAttentionOperations::attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                               const AttentionOptions& options, const ForwardContext& context) const {
  if (context.training && options.dropout > 0) return attention_with_dropout(query, key, value, options, context);
  // For meta tensors libtorch would choose the implementation that stores the scores of all pairs of tokens. On real
  // devices it prefers one that does not, and its tensors are those of this one.
  if (query.is_meta() && current_attention_kernel() != AttentionKernel::math)
    return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, 0, options.causal));
  return at::scaled_dot_product_attention(query, key, value, /*attn_mask=*/{}, /*dropout_p=*/0, options.causal);
}

at::Tensor PlainBatchNormOperations::batch_norm(const at::Tensor& input, const BatchNorm2d& norm,
                                                const ForwardContext& context) const {
  if (context.training) {
    at::Tensor batches = norm.num_batches_tracked;
    batches.add_(1);
  }
  return at::batch_norm(input, norm.weight, norm.bias, norm.running_mean, norm.running_var, context.training,
                        norm.momentum, norm.epsilon, /*cudnn_enabled=*/true);
}

// In place: batch-norm's backward reads its input and ReLU's reads its output, so nothing needs the overwritten tensor.
at::Tensor PlainBatchNormOperations::batch_norm_relu(const at::Tensor& input, const BatchNorm2d& norm,
                                                     const ForwardContext& context) const {
  return batch_norm(input, norm, context).relu_();
}

at::Tensor PlainBatchNormOperations::batch_norm_add_relu(const at::Tensor& input, const BatchNorm2d& norm,
                                                         const at::Tensor& residual,
                                                         const ForwardContext& context) const {
  return batch_norm(input, norm, context).add_(residual).relu_();
}

at::Tensor PlainBatchNormOperations::stem_pool(const at::Tensor& input, const BatchNorm2d& norm,
                                               const ForwardContext& context) const {
  return at::max_pool2d(batch_norm_relu(input, norm, context), 3, 2, 1);
}

at::Tensor PlainConvolutionOperations::forward(const Conv2d::Shape& shape, const at::Tensor& input,
                                               const at::Tensor& weight) const {
  return at::conv2d(input, weight, {}, shape.stride, shape.padding, /*dilation=*/1, shape.groups);
}

at::Tensor PlainGeluOperations::linear_gelu(const at::Tensor& input, const Linear& linear, GeluForm form) const {
  return at::gelu(linear.forward(input), form == GeluForm::tanh ? "tanh" : "none");
}

at::Tensor PlainHeadOperations::head(const at::Tensor& input, const Linear& linear, const ForwardContext&) const {
  return linear.forward(at::adaptive_avg_pool2d(input, {1, 1}).flatten(1));
}

at::Tensor PlainLanguageHeadOperations::loss(const at::Tensor& hidden, const at::Tensor& weight,
                                             const at::Tensor& target) const {
  const at::Tensor logits = at::linear(hidden, weight).flatten(0, 1);
  const at::Tensor wide = logits.to(at::promoteTypes(logits.scalar_type(), at::kFloat));
  return at::cross_entropy_loss(wide, target.flatten(), {}, at::Reduction::Mean, kIgnoredTarget);
}

at::Tensor PlainLayerNormOperations::layer_norm(const at::Tensor& input, const LayerNorm& norm) const {
  return at::layer_norm(input, norm.weight.sizes(), norm.weight, norm.bias, norm.epsilon);
}

NormalisedSum PlainLayerNormOperations::add_layer_norm(const at::Tensor& residual, const at::Tensor& branch,
                                                       const LayerNorm& norm) const {
  const at::Tensor sum = residual + branch;
  return {sum, layer_norm(sum, norm)};
}

at::Tensor PlainLinearOperations::linear(const at::Tensor& input, const LinearTensors& layer) const {
  return at::linear(input, layer.weight, layer.bias);
}

at::Tensor ForwardingOperations::linear(const at::Tensor& input, const LinearTensors& layer) const {
  return inner_.linear->linear(input, layer);
}

std::optional<at::ScalarType> ForwardingOperations::rounds_to() const { return inner_.linear->rounds_to(); }

bool ForwardingOperations::supports(const Conv2d::Shape& shape, const at::Tensor& input) const {
  return inner_.convolution->supports(shape, input);
}

at::Tensor ForwardingOperations::forward(const Conv2d::Shape& shape, const at::Tensor& input,
                                         const at::Tensor& weight) const {
  return inner_.convolution->forward(shape, input, weight);
}

at::Tensor ForwardingOperations::batch_norm(const at::Tensor& input, const BatchNorm2d& norm,
                                            const ForwardContext& context) const {
  return inner_.batch_norm->batch_norm(input, norm, context);
}

at::Tensor ForwardingOperations::batch_norm_relu(const at::Tensor& input, const BatchNorm2d& norm,
                                                 const ForwardContext& context) const {
  return inner_.batch_norm->batch_norm_relu(input, norm, context);
}

at::Tensor ForwardingOperations::batch_norm_add_relu(const at::Tensor& input, const BatchNorm2d& norm,
                                                     const at::Tensor& residual, const ForwardContext& context) const {
  return inner_.batch_norm->batch_norm_add_relu(input, norm, residual, context);
}

at::Tensor ForwardingOperations::stem_pool(const at::Tensor& input, const BatchNorm2d& norm,
                                           const ForwardContext& context) const {
  return inner_.batch_norm->stem_pool(input, norm, context);
}

at::Tensor ForwardingOperations::head(const at::Tensor& input, const Linear& linear,
                                      const ForwardContext& context) const {
  return inner_.head->head(input, linear, context);
}

at::Tensor ForwardingOperations::attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                           const AttentionOptions& options, const ForwardContext& context) const {
  return inner_.attention->attention(query, key, value, options, context);
}

at::Tensor ForwardingOperations::layer_norm(const at::Tensor& input, const LayerNorm& norm) const {
  return inner_.layer_norm->layer_norm(input, norm);
}

NormalisedSum ForwardingOperations::add_layer_norm(const at::Tensor& residual, const at::Tensor& branch,
                                                   const LayerNorm& norm) const {
  return inner_.layer_norm->add_layer_norm(residual, branch, norm);
}

at::Tensor ForwardingOperations::linear_gelu(const at::Tensor& input, const Linear& linear, GeluForm form) const {
  return inner_.gelu->linear_gelu(input, linear, form);
}

at::Tensor ForwardingOperations::loss(const at::Tensor& hidden, const at::Tensor& weight,
                                      const at::Tensor& target) const {
  return inner_.language_head->loss(hidden, weight, target);
}

bool ForwardingOperations::keeps_written_attention() const { return inner_.attention->keeps_written_attention(); }
bool ForwardingOperations::keeps_written_gelu() const { return inner_.gelu->keeps_written_gelu(); }

Operations all_through(std::shared_ptr<const ForwardingOperations> wrapper) {
  return {.linear = wrapper,
          .convolution = wrapper,
          .batch_norm = wrapper,
          .head = wrapper,
          .attention = wrapper,
          .layer_norm = wrapper,
          .gelu = wrapper,
          .language_head = wrapper};
}

}  // namespace trainopt
