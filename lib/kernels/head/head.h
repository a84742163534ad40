// The end of a classifier as passes over memory: the mean over pixels, and softmax cross-entropy with its gradient.
//
// Images are 4-D, channels-last; logits are [batch, classes], contiguous; both are float32, bfloat16 or float16. Sums
// are in float32, and every result is rounded once. With p = softmax(logits), target t and smoothing s, both averaged
// over the batch (Szegedy et al. 2016, section 7, as in torch's cross_entropy):
//   loss = −(1 − s) · log p_t − s / classes · Σ log p
//   its gradient with respect to a logit = p − (1 − s) · [the logit is the target's] − s / classes
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace trainopt::kernels {

// RECORD_FUNCTION labels of the differentiable forms, forward and backward.
inline constexpr const char *kAveragePoolLabel = "trainopt::fused_average_pool",
                            *kAveragePoolGradientLabel = "trainopt::fused_average_pool_backward";
inline constexpr const char *kCrossEntropyLabel = "trainopt::fused_cross_entropy",
                            *kCrossEntropyGradientLabel = "trainopt::fused_cross_entropy_backward";

struct CrossEntropy {
  at::Tensor loss;  ///< 0-dim float32, the mean over the batch, added in float64 in a fixed order
  /// Shape and type of the logits. The gradient of the sum over the batch, × stored_gradient_scale(); finish_gradient()
  /// turns it into the gradient of the mean.
  at::Tensor gradient;
};

/// The gradient of one sample is between −1 and 1 and small if there are many classes. float16 has too little precision
/// below 6e-5 for such values, but room above 1.
inline float stored_gradient_scale(at::ScalarType type) { return type == at::kHalf ? 32768.0f : 1.0f; }

class HeadKernels {
 public:
  virtual ~HeadKernels() = default;

  /// [images, channels], of x's type: the mean over height and width.
  virtual at::Tensor mean(const at::Tensor& x) const = 0;
  /// The gradient with respect to x, channels-last: gradient / (height · width) at every pixel. `gradient`: [images,
  /// channels], contiguous.
  virtual at::Tensor mean_gradient(const at::Tensor& gradient, int64_t height, int64_t width) const = 0;

  /// One pass. `target`: int64 [batch], each in [0, classes). Any other target throws c10::IndexError, as in torch's
  /// cross_entropy; on a GPU, where the host does not read targets, it makes the loss and the gradient of its row NaN.
  /// `smoothing`: in [0, 1].
  virtual CrossEntropy cross_entropy(const at::Tensor& logits, const at::Tensor& target, double smoothing) const = 0;
  /// In place: multiplies the gradient that cross_entropy() returned by upstream ÷ batch and removes
  /// stored_gradient_scale(). `upstream`: the gradient of the loss, 0-dim float32 on the same device; the host does not
  /// read its value.
  virtual void finish_gradient(at::Tensor& gradient, const at::Tensor& upstream) const = 0;
};

/// Plain libtorch operations in float32: the reference for the other implementations.
const HeadKernels& reference_head_kernels();
/// Distributes images or rows to a few threads; results do not depend on the number of threads. Uses the widest vectors
/// of this CPU.
const HeadKernels& cpu_head_kernels();
/// One for each vector width of this CPU, the widest last.
std::vector<const HeadKernels*> all_cpu_head_kernels();
/// For GPUs, on the device's current stream; nullptr without libtrainopt_cuda.so. Touches no GPU before it is used.
const HeadKernels* cuda_head_kernels();

// The average pool and the loss, differentiable with respect to images and logits. Double backward is unsupported.

/// HeadKernels::mean(). Converts inputs that are not channels-last. `kernels` must outlive the graph.
at::Tensor average_pool(const at::Tensor& input, const HeadKernels& kernels);

/// The mean loss over the batch, differentiable with respect to `logits` once: libtorch refuses a second backward.
/// `kernels` must outlive the graph.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target, double smoothing,
                         const HeadKernels& kernels);

}  // namespace trainopt::kernels
