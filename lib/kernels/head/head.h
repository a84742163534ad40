// A classifier's end as passes over memory: the mean over pixels, and softmax cross-entropy with its gradient.
//
// Images are 4-D, channels-last; logits are [batch, classes], contiguous; both of float32, bfloat16 or float16. Sums
// are float32, and every result is rounded once. With p = softmax(logits), the target t and the smoothing s, both means
// over the batch (Szegedy et al. 2016, section 7, as torch's cross_entropy has it):
//   loss = −(1 − s) · log p_t − s / classes · Σ log p
//   its gradient by a logit = p − (1 − s) · [it is the target's] − s / classes
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace trainopt::kernels {

// RECORD_FUNCTION labels of the differentiable forms (head/autograd.h), forward and backward.
inline constexpr const char *kAveragePoolLabel = "trainopt::fused_average_pool",
                            *kAveragePoolGradientLabel = "trainopt::fused_average_pool_backward";
inline constexpr const char *kCrossEntropyLabel = "trainopt::fused_cross_entropy",
                            *kCrossEntropyGradientLabel = "trainopt::fused_cross_entropy_backward";

struct CrossEntropy {
  at::Tensor loss;  ///< 0-dim float32, the mean over the batch: added up in float64, always in the same order
  /// Like the logits: of the batch's sum, × kept_scale(). finish_gradient() turns it into that of the mean.
  at::Tensor gradient;
};

/// A gradient of one sample is between −1 and 1, and those of many classes are small. What float16 has left below 6e-5
/// is not enough for them; above 1 it has room.
inline float kept_scale(at::ScalarType type) { return type == at::kHalf ? 32768.0f : 1.0f; }

class HeadKernels {
 public:
  virtual ~HeadKernels() = default;

  /// [images, channels], like x: the mean over height and width.
  virtual at::Tensor mean(const at::Tensor& x) const = 0;
  /// Its gradient by x, channels-last: gradient / (height · width) at every pixel. `gradient`: [images, channels],
  /// contiguous.
  virtual at::Tensor mean_gradient(const at::Tensor& gradient, int64_t height, int64_t width) const = 0;

  /// One pass. `target`: int64 [batch], each in [0, classes); another one throws c10::IndexError as torch's
  /// cross_entropy does, or, on a GPU, which the host does not ask, makes loss and gradient of its row NaN.
  /// `smoothing`: in [0, 1].
  virtual CrossEntropy cross_entropy(const at::Tensor& logits, const at::Tensor& target, double smoothing) const = 0;
  /// In place: what cross_entropy() gave × upstream ÷ batch. `upstream`: the loss's own gradient, 0-dim float32 on the
  /// same device; the host does not ask what it is.
  virtual void finish_gradient(at::Tensor& gradient, const at::Tensor& upstream) const = 0;
};

/// libtorch's operations one after another, in float32: the others are compared with it.
const HeadKernels& reference_head_kernels();
/// A few threads, each with whole images or rows; no result depends on their number. Uses the widest vectors that this
/// CPU has.
const HeadKernels& cpu_head_kernels();
/// One for each width that this CPU has, the widest last.
std::vector<const HeadKernels*> all_cpu_head_kernels();
/// For GPUs, on the device's current stream; nullptr in builds without CUDA. Touches no GPU before it is used.
const HeadKernels* cuda_head_kernels();

}  // namespace trainopt::kernels
