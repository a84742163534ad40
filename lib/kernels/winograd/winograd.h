// A 3×3 convolution with stride 1 and padding 1, and its two gradients, by Winograd's minimal filtering (tiles.h): a
// quarter of the multiplications, more by what tiles that reach over the border waste. Errors: transformed numbers are
// sums with factors of up to 25 and 64, so that float32 loses about one digit against a direct convolution; 16-bit
// numbers are computed with as float32, so that they lose nothing. There is no reference of our own: libtorch's
// convolution is the twin that it is compared with.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainopt::kernels::winograd {

// RECORD_FUNCTION labels of the differentiable form (winograd/autograd.h), forward and backward; each has the
// convolution's input as its argument.
inline constexpr const char *kConvolutionLabel = "trainopt::winograd_convolution",
                            *kConvolutionGradientLabel = "trainopt::winograd_convolution_backward";

/// Multiplications of the direct convolution by those of this one, for an image of height × width.
double saving(int64_t height, int64_t width);

// Images are [n, channels, height, width], not empty, weights [outputs, channels, 3, 3], of float64, float32, bfloat16
// or float16 on the CPU; both are float64, or neither. Channels are multiples of kPanel (tiles.h). Throws
// BrokenInvariant otherwise. Results are new tensors, NHWC, of the images' type if not said otherwise. Inputs that are
// stored otherwise are rearranged first. The same bits for any number of threads.

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight);
at::Tensor input_gradient(const at::Tensor& output_gradient, const at::Tensor& weight);
/// Of `type`.
at::Tensor weight_gradient(const at::Tensor& output_gradient, const at::Tensor& input, at::ScalarType type);

}  // namespace trainopt::kernels::winograd
