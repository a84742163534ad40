// The operations that a model's units call. Each kind is an interface with a plain implementation that an optimization
// may replace; parameter names do not change.
#pragma once

#include "model/layers.h"
#include "model/unit.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

namespace trainopt {

// The attention of transformers.

// RECORD_FUNCTION label of attention with dropout, which no function of libtorch computes from the trainer's generator.
inline constexpr const char* kDroppedAttentionLabel = "trainopt::attention_with_dropout";

// RECORD_FUNCTION labels of layers of a program that run as it has written them out.
inline constexpr const char *kWrittenAttentionLabel = "trainopt::written_attention",
                            *kWrittenGeluLabel = "trainopt::written_gelu";

struct AttentionOptions {
  bool causal = false;  ///< a token attends to itself and to earlier ones only
  double dropout = 0;   ///< dropout rate of the softmax's results, in training
};

/// Tensors are batch × heads × tokens × head width, of one type; the values of a head are contiguous in memory.
class AttentionOperations {
 public:
  virtual ~AttentionOperations() = default;
  /// softmax(query · keyᵀ ÷ √(head width)) · value, for each sample and head (Vaswani et al. 2017).
  virtual at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                               const AttentionOptions& options, const ForwardContext& context) const = 0;
  /// Whether no switch asks for another attention than a program has written out.
  virtual bool keeps_written_attention() const { return false; }
};

/// libtorch's, which chooses among its implementations by device, type and sizes. With dropout: one operation after the
/// other, because libtorch's implementations draw from its own generator.
class PlainAttentionOperations : public AttentionOperations {
 public:
  at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const AttentionOptions& options, const ForwardContext& context) const override;
  bool keeps_written_attention() const override { return true; }
};

// Batch-norm, alone or combined with the operations that follow it in a network's blocks.

/// Inputs and residuals are not overwritten. In training, running statistics are updated in place and
/// num_batches_tracked grows by one, without synchronising with the host.
class BatchNormOperations {
 public:
  virtual ~BatchNormOperations() = default;
  virtual at::Tensor batch_norm(const at::Tensor& input, const BatchNorm2d& norm,
                                const ForwardContext& context) const = 0;
  virtual at::Tensor batch_norm_relu(const at::Tensor& input, const BatchNorm2d& norm,
                                     const ForwardContext& context) const = 0;
  /// relu(batch_norm(input) + residual)
  virtual at::Tensor batch_norm_add_relu(const at::Tensor& input, const BatchNorm2d& norm, const at::Tensor& residual,
                                         const ForwardContext& context) const = 0;
  /// max-pool(relu(batch_norm(input))), 3×3 with stride 2 and padding 1
  virtual at::Tensor stem_pool(const at::Tensor& input, const BatchNorm2d& norm,
                               const ForwardContext& context) const = 0;
};

/// The ATen operations that torchvision uses, one by one.
class PlainBatchNormOperations : public BatchNormOperations {
 public:
  at::Tensor batch_norm(const at::Tensor& input, const BatchNorm2d& norm, const ForwardContext& context) const override;
  at::Tensor batch_norm_relu(const at::Tensor& input, const BatchNorm2d& norm,
                             const ForwardContext& context) const override;
  at::Tensor batch_norm_add_relu(const at::Tensor& input, const BatchNorm2d& norm, const at::Tensor& residual,
                                 const ForwardContext& context) const override;
  at::Tensor stem_pool(const at::Tensor& input, const BatchNorm2d& norm, const ForwardContext& context) const override;
};

// The operation of convolution layers.

/// Convolutions and their gradients. `input`: batch × channels × height × width. Thread-safe.
class ConvolutionOperations {
 public:
  virtual ~ConvolutionOperations() = default;
  /// Whether this implementation computes the convolution itself rather than with libtorch, judging by shapes, types,
  /// device and autocast. A wrapper calls it to leave such convolutions to the part it wraps.
  virtual bool supports(const Conv2d::Shape&, const at::Tensor& /*input*/) const { return false; }
  /// The result has autocast's type if autocast is on, otherwise the input's. `weight`: the parameter, or its 16-bit
  /// copy if there is one. Double backward may be unsupported.
  virtual at::Tensor forward(const Conv2d::Shape& shape, const at::Tensor& input, const at::Tensor& weight) const = 0;
};

/// libtorch's convolution.
class PlainConvolutionOperations : public ConvolutionOperations {
 public:
  at::Tensor forward(const Conv2d::Shape& shape, const at::Tensor& input, const at::Tensor& weight) const override;
};

// The first half of a transformer's MLP.

/// Hendrycks and Gimpel 2016. exact: x · Φ(x); tanh: their approximation of it, with which GPT-2 was trained.
enum class GeluForm { exact, tanh };

class GeluOperations {
 public:
  virtual ~GeluOperations() = default;
  /// gelu(linear(input)), over the last dimension.
  virtual at::Tensor linear_gelu(const at::Tensor& input, const Linear& linear, GeluForm form) const = 0;
  /// Whether no switch asks for another GELU than a program has written out.
  virtual bool keeps_written_gelu() const { return false; }
};

/// ATen operations, one by one.
class PlainGeluOperations : public GeluOperations {
 public:
  at::Tensor linear_gelu(const at::Tensor& input, const Linear& linear, GeluForm form) const override;
  bool keeps_written_gelu() const override { return true; }
};

// The operation of a convolutional network's classification head.

class HeadOperations {
 public:
  virtual ~HeadOperations() = default;
  /// linear(mean over height and width). `input`: batch × channels × height × width; returns batch × classes.
  virtual at::Tensor head(const at::Tensor& input, const Linear& linear, const ForwardContext& context) const = 0;
};

/// The ATen operations that torchvision uses, one by one.
class PlainHeadOperations : public HeadOperations {
 public:
  at::Tensor head(const at::Tensor& input, const Linear& linear, const ForwardContext& context) const override;
};

// The end of a language model: logits of the next token, and their loss.

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

// Layer norm, alone or with the addition before it in a transformer's blocks.

/// A residual stream and its normalised values, both of the residual's shape.
struct NormalisedSum {
  at::Tensor sum, normalised;
};

/// Over the last dimension. Inputs are not overwritten.
class LayerNormOperations {
 public:
  virtual ~LayerNormOperations() = default;
  /// The result may have autocast's type, if autocast is on, or the input's.
  virtual at::Tensor layer_norm(const at::Tensor& input, const LayerNorm& norm) const = 0;
  /// residual + branch, and layer_norm() of that.
  virtual NormalisedSum add_layer_norm(const at::Tensor& residual, const at::Tensor& branch,
                                       const LayerNorm& norm) const = 0;
};

/// ATen operations, one by one.
class PlainLayerNormOperations : public LayerNormOperations {
 public:
  at::Tensor layer_norm(const at::Tensor& input, const LayerNorm& norm) const override;
  NormalisedSum add_layer_norm(const at::Tensor& residual, const at::Tensor& branch,
                               const LayerNorm& norm) const override;
};

// The product of a linear layer.

/// What a linear layer computes with.
struct LinearTensors {
  at::Tensor weight;     ///< out × in: the parameter or its 16-bit copy
  at::Tensor bias;       ///< out: the parameter or its 16-bit copy; undefined: none is added
  at::Tensor parameter;  ///< the weight as the optimizer updates it: the same tensor in every call of one layer
};

class LinearOperations {
 public:
  virtual ~LinearOperations() = default;
  /// input · weightᵀ + bias, over the last dimension. `input`: … × in; returns … × out, under autocast in its type.
  virtual at::Tensor linear(const at::Tensor& input, const LinearTensors& layer) const = 0;
  /// The type of the fewest bits to which operands of the products, forward and backward, are rounded; null: they keep
  /// the type in which they are given.
  virtual std::optional<at::ScalarType> rounds_to() const { return std::nullopt; }
};

/// libtorch's.
class PlainLinearOperations : public LinearOperations {
 public:
  at::Tensor linear(const at::Tensor& input, const LinearTensors& layer) const override;
};

/// Plain by default; none is null.
struct Operations {
  std::shared_ptr<const LinearOperations> linear = std::make_shared<PlainLinearOperations>();
  std::shared_ptr<const ConvolutionOperations> convolution = std::make_shared<PlainConvolutionOperations>();
  std::shared_ptr<const BatchNormOperations> batch_norm = std::make_shared<PlainBatchNormOperations>();
  std::shared_ptr<const HeadOperations> head = std::make_shared<PlainHeadOperations>();
  std::shared_ptr<const AttentionOperations> attention = std::make_shared<PlainAttentionOperations>();
  std::shared_ptr<const LayerNormOperations> layer_norm = std::make_shared<PlainLayerNormOperations>();
  std::shared_ptr<const GeluOperations> gelu = std::make_shared<PlainGeluOperations>();
  std::shared_ptr<const LanguageHeadOperations> language_head = std::make_shared<PlainLanguageHeadOperations>();
};

/// Passes every operation on to another implementation: the base of what watches all kinds of operation, or several.
class ForwardingOperations : public LinearOperations,
                             public ConvolutionOperations,
                             public BatchNormOperations,
                             public HeadOperations,
                             public AttentionOperations,
                             public LayerNormOperations,
                             public GeluOperations,
                             public LanguageHeadOperations {
 public:
  explicit ForwardingOperations(Operations inner = {}) : inner_(std::move(inner)) {}

  at::Tensor linear(const at::Tensor& input, const LinearTensors& layer) const override;
  std::optional<at::ScalarType> rounds_to() const override;
  bool supports(const Conv2d::Shape& shape, const at::Tensor& input) const override;
  at::Tensor forward(const Conv2d::Shape& shape, const at::Tensor& input, const at::Tensor& weight) const override;
  at::Tensor batch_norm(const at::Tensor& input, const BatchNorm2d& norm, const ForwardContext& context) const override;
  at::Tensor batch_norm_relu(const at::Tensor& input, const BatchNorm2d& norm,
                             const ForwardContext& context) const override;
  at::Tensor batch_norm_add_relu(const at::Tensor& input, const BatchNorm2d& norm, const at::Tensor& residual,
                                 const ForwardContext& context) const override;
  at::Tensor stem_pool(const at::Tensor& input, const BatchNorm2d& norm, const ForwardContext& context) const override;
  at::Tensor head(const at::Tensor& input, const Linear& linear, const ForwardContext& context) const override;
  at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const AttentionOptions& options, const ForwardContext& context) const override;
  at::Tensor layer_norm(const at::Tensor& input, const LayerNorm& norm) const override;
  NormalisedSum add_layer_norm(const at::Tensor& residual, const at::Tensor& branch,
                               const LayerNorm& norm) const override;
  at::Tensor linear_gelu(const at::Tensor& input, const Linear& linear, GeluForm form) const override;
  bool keeps_written_attention() const override;
  bool keeps_written_gelu() const override;
  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& target) const override;

 private:
  Operations inner_;
};

/// All kinds of operation by one object.
Operations all_through(std::shared_ptr<const ForwardingOperations> wrapper);

}  // namespace trainopt
