// The bias of a linear layer with GELU, as one pass over memory each way.
//
// x is [..., width], contiguous, float32, bfloat16 or float16: a linear layer's output without its bias. With z = x +
// bias, both forms are gelu(z) = z · share(z), with share(z) (Hendrycks and Gimpel 2016):
//   exact: Φ(z) = (1 + erf(z / √2)) / 2, as torch's gelu
//   tanh: (1 + tanh(√(2/π) · (z + 0.044715 · z³))) / 2, as torch's gelu with approximate="tanh", and GPT-2
// All is computed in float32 and every result is rounded once.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace trainopt::kernels {

// RECORD_FUNCTION labels of the differentiable form, forward and backward.
inline constexpr const char *kGeluLabel = "trainopt::fused_gelu", *kGeluGradientLabel = "trainopt::fused_gelu_backward";

enum class Gelu { exact, tanh };

struct GeluGradients {
  at::Tensor of_x;     ///< gradient · gelu'(x + bias), of x's type
  at::Tensor of_bias;  ///< [width] float32: the sum over rows of the same before rounding
};

/// In every implementation, sums do not depend on the number of threads.
class GeluKernels {
 public:
  virtual ~GeluKernels() = default;

  /// gelu(x + bias), of x's type. `bias`: [width] float32.
  virtual at::Tensor forward(const at::Tensor& x, const at::Tensor& bias, Gelu form) const = 0;
  /// `gradient`: of forward()'s result, of x's type.
  virtual GeluGradients backward(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& bias,
                                 Gelu form) const = 0;
};

/// Plain libtorch operations in float32: the reference for the other implementations.
const GeluKernels& reference_gelu_kernels();
/// Distributes rows to a few threads. Uses the widest vectors of this CPU.
const GeluKernels& cpu_gelu_kernels();
/// One for each vector width of this CPU, the widest last.
std::vector<const GeluKernels*> all_cpu_gelu_kernels();
/// For GPUs, on the device's current stream; nullptr without libtrainopt_cuda.so. Touches no GPU before it is used.
const GeluKernels* cuda_gelu_kernels();

// Bias and GELU, differentiable with respect to both inputs. Double backward is unsupported.

/// GeluKernels::forward(). An x that is not contiguous is copied. `kernels` must outlive the graph.
at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias, Gelu form, const GeluKernels& kernels);

}  // namespace trainopt::kernels
