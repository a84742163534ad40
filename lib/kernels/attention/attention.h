// Attention on CPUs, without the scores of all pairs of tokens in memory.
//
// Per sample and head, with queries q, keys k and values v of `tokens` rows and the head width d (Vaswani et al. 2017):
//   output = p · v, with p = softmax(q · kᵀ ÷ √d) by rows; causal: a row's later keys have p = 0
// With the gradient g of the output (Dao et al. 2022, appendix B):
//   gradient of v = pᵀ · g
//   s = p ∘ (h − Σ p ∘ h by rows), with h = g · vᵀ: the gradient of q · kᵀ ÷ √d
//   gradient of q = s · k ÷ √d, of k = sᵀ · q ÷ √d
// All is computed in float32, whatever the type of the tensors, and every result is rounded once. Backward computes p
// again, from the scores and the sums of their exponentials.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace trainopt::kernels {

// RECORD_FUNCTION labels of the differentiable form, forward and backward.
inline constexpr const char *kAttentionLabel = "trainopt::fused_attention",
                            *kAttentionGradientLabel = "trainopt::fused_attention_backward";

/// References to tensors owned elsewhere: [samples, heads, tokens, head width], none of them 0, of one type, float32,
/// bfloat16 or float16; the values of a head are contiguous in memory, rows may lie anywhere.
struct AttentionInputs {
  const at::Tensor &query, &key, &value;
  bool causal;  ///< a token attends to itself and to earlier ones only
};

struct AttentionResult {
  at::Tensor output;    ///< has the inputs' shape and type; in memory [samples, tokens, heads, head width]
  at::Tensor log_sums;  ///< log Σ exp of a row's scores: [samples, heads, tokens] float32
};

/// Each has its input's shape and type, and the output's order in memory.
struct AttentionGradients {
  at::Tensor of_query, of_key, of_value;
};

/// In every implementation, results do not depend on the number of threads. For meta tensors results are allocated and
/// nothing is computed.
class AttentionKernels {
 public:
  virtual ~AttentionKernels() = default;
  virtual AttentionResult forward(const AttentionInputs& inputs) const = 0;
  /// `gradient`: as the output, contiguous within a head. `log_sums`: forward()'s.
  virtual AttentionGradients backward(const at::Tensor& gradient, const AttentionInputs& inputs,
                                      const at::Tensor& log_sums) const = 0;
};

/// Plain libtorch operations in float32, with the scores of all pairs: the reference for the other implementations.
const AttentionKernels& reference_attention_kernels();
/// Distributes samples and heads to threads. Uses the widest vectors of this CPU.
const AttentionKernels& cpu_attention_kernels();
/// One for each vector width of this CPU, the widest last.
std::vector<const AttentionKernels*> all_cpu_attention_kernels();

// Attention, differentiable with respect to queries, keys and values. Double backward is unsupported.

/// Inputs whose heads are not contiguous are copied. `kernels` must outlive the graph.
at::Tensor attention(const AttentionInputs& inputs, const AttentionKernels& kernels);

}  // namespace trainopt::kernels
