// The layer norms and GELUs of a transformer and their gradients, on fused kernels.
#pragma once

#include "kernels/gelu/gelu.h"
#include "kernels/head/head.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/linear_cross_entropy/linear_cross_entropy.h"
#include "kernels/norm/norm.h"
#include "kernels/pool/pool.h"
#include "model/operations.h"
#include "model/task.h"

#include <memory>

namespace trainopt::fused_kernels {

/// The kernels of one device. They must outlive their users.
struct RowKernels {
  const kernels::LayerNormKernels& layer_norm;
  const kernels::GeluKernels& gelu;
};

/// `device`: the meta device, the CPU, or a GPU of this process.
RowKernels row_kernels_for(at::Device device);

/// Normalised values have autocast's type while it is enabled, since a linear layer follows.
std::unique_ptr<LayerNormOperations> make_fused_layer_norm(const RowKernels& kernels);
/// The linear layer's product is libtorch's; its bias is added together with GELU.
std::unique_ptr<GeluOperations> make_fused_gelu(const RowKernels& kernels);

// The composite operations of network blocks and their gradients, on fused kernels.

/// The kernels of one device. They must outlive their users.
struct BlockKernels {
  const kernels::NormKernels& norm;
  const kernels::PoolKernels& pool;
  const kernels::HeadKernels& head;
};

/// Inputs that are not channels-last are converted. In evaluation, batch-norm is a precomputed scale and shift, each
/// operation is one pass, and gradients must be disabled.
std::unique_ptr<BatchNormOperations> make_fused_batch_norm(const BlockKernels& kernels);
/// The head's average pool, with inputs, evaluation and gradients as in make_fused_batch_norm().
std::unique_ptr<HeadOperations> make_fused_head(const BlockKernels& kernels);

// Attention on a CPU by our kernels, where nothing else was chosen.

/// Where optimizations.attention is `auto` and nothing is dropped; otherwise libtorch's. Also libtorch's for bfloat16
/// on CPUs with AMX, which its flash attention uses and our kernels do not, and for fewer samples × heads than threads,
/// because it divides a head further.
std::unique_ptr<AttentionOperations> make_fused_attention();

// Linear layers whose float32 products oneDNN computes where that is faster than libtorch's choice (device/product.h).

// RECORD_FUNCTION labels: a layer computed here, and its backward.
inline constexpr const char *kLinearLabel = "trainopt::linear", *kLinearGradientLabel = "trainopt::linear_backward";

/// Layers that another library does not speed up, and all of them under autocast, are left to `inner`. Returns `inner`
/// itself if it rounds its operands.
std::unique_ptr<LinearOperations> make_fused_linear(std::unique_ptr<LinearOperations> inner);

// Classification that computes the loss and its gradient in one pass.

/// Computes what ClassificationTask does, which it uses in evaluation.
class FusedClassificationTask : public ClassificationTask {
 public:
  FusedClassificationTask(double label_smoothing, const kernels::HeadKernels& kernels)
      : ClassificationTask(label_smoothing), label_smoothing_(label_smoothing), kernels_(kernels) {}
  TaskOutput loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                  const ForwardContext& context) const override;

 private:
  double label_smoothing_;
  const kernels::HeadKernels& kernels_;
};

// The end of a language model in pieces of tokens, without the logits of all tokens.

/// `device`: the meta device, the CPU, or a GPU of this process.
const kernels::LinearCrossEntropyKernels& language_head_kernels(at::Device device);

/// Computes in autocast's type while it is enabled. `kernels` must outlive it.
std::unique_ptr<LanguageHeadOperations> make_fused_language_head(const kernels::LinearCrossEntropyKernels& kernels);

}  // namespace trainopt::fused_kernels
