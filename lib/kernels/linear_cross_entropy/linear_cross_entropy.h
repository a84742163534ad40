// The last linear layer of a language model with softmax cross-entropy, in pieces of rows: the logits [rows, classes]
// never exist as a whole.
//
// Hidden states are [rows, width], the weight is [classes, width], both contiguous and of one type: float32, bfloat16
// or float16. The target is int64 [rows]; a row with the target kIgnored (padding) counts for nothing. With logits =
// hidden · weightᵀ, p = softmax(logits), target t and n rows that count:
//   loss = −Σ log p_t ÷ n
//   gradient of the logits of a row that counts, for the sum over rows: G = p − [the class is the target], else 0
//   gradient of hidden: G · weight ÷ n; of weight: Gᵀ · hidden ÷ n
// Both gradients are linear in the upstream gradient of the loss, so they are computed with the loss, piece by piece,
// and G replaces the logits of its piece. Sources: Hsu et al. 2024, "Liger Kernel"; Wijmans et al. 2024, "Cut Your
// Losses in Large-Vocabulary Language Models".
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace trainopt::kernels {

// RECORD_FUNCTION labels of the differentiable form, forward and backward; none is
// posted without gradients. The first has the inputs rows, classes, number of pieces, bytes of their buffer, and
// plain_bytes().
inline constexpr const char *kLinearCrossEntropyLabel = "trainopt::linear_cross_entropy",
                            *kLinearCrossEntropyGradientLabel = "trainopt::linear_cross_entropy_backward";

struct LinearCrossEntropy {
  at::Tensor loss;  ///< 0-dim float32; NaN if no row counts, as in torch's cross_entropy
  /// Float32, of the sum over rows; × share × upstream is the gradient. Undefined unless wanted.
  at::Tensor of_hidden, of_weight;
  at::Tensor share;  ///< 0-dim float32: 1 ÷ the number of rows that count, at least 1
};

struct WantedGradients {
  bool of_hidden = false, of_weight = false;
  bool any() const { return of_hidden || of_weight; }
};

/// The buffer in which the logits of one piece of rows become their gradient.
struct Pieces {
  int64_t rows;    ///< rows in a piece; the last may have fewer
  int64_t count;   ///< number of pieces
  int64_t stride;  ///< values from a row to the next: an odd number of 64-byte lines
  int64_t bytes;
};

class LinearCrossEntropyKernels {
 public:
  static constexpr int64_t kIgnored = -100;
  virtual ~LinearCrossEntropyKernels() = default;

  /// A target that is neither kIgnored nor in [0, classes) throws c10::IndexError, as in torch's cross_entropy. On a
  /// GPU, where the host does not read targets, it makes the loss and the gradients NaN. There must be at least one
  /// row.
  virtual LinearCrossEntropy run(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& target,
                                 WantedGradients wanted) const = 0;
  virtual Pieces pieces(int64_t rows, int64_t classes, at::ScalarType type) const = 0;
};

/// Bytes of the logits in this type, their float32 copy if they have 16 bits, and their gradient: the least that plain
/// libtorch allocates in training.
int64_t plain_bytes(int64_t rows, int64_t classes, at::ScalarType type);

/// Plain libtorch operations in float32 on all rows at once: the reference for the other implementations.
const LinearCrossEntropyKernels& reference_linear_cross_entropy_kernels();
/// The products are libtorch's. Those of 16-bit operands are computed in 16 bits if this CPU has instructions for them
/// (AVX512_BF16, for bfloat16), otherwise in float32 from converted operands. Everything else does not depend on the
/// number of threads, and uses the widest vectors of this CPU.
const LinearCrossEntropyKernels& cpu_linear_cross_entropy_kernels();
/// One for each vector width of this CPU, with products in float32 and in the operands' type, the best last.
std::vector<const LinearCrossEntropyKernels*> all_cpu_linear_cross_entropy_kernels();
/// For GPUs, on the device's current stream; nullptr without libtrainopt_cuda.so. Touches no GPU before it is used.
const LinearCrossEntropyKernels* cuda_linear_cross_entropy_kernels();

// The loss of a language model's last layer, differentiable with respect to hidden states and weight.

/// The mean loss over the rows that count, computed with hidden states and weight of type `type`, to which others are
/// converted. Gradients are computed with the loss, if they are enabled and an input requires one; each is rounded
/// once, to its input's own type. Backward multiplies them by the upstream gradient in place, so libtorch refuses a
/// second one. Inputs that are not contiguous are copied. `kernels` must outlive the graph.
at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& target,
                                at::ScalarType type, const LinearCrossEntropyKernels& kernels);

}  // namespace trainopt::kernels
