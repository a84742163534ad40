// A 3×3 convolution with stride 1 and padding 1, and its two gradients, by Winograd's minimal filtering (tiles.h): a
// quarter of the multiplications, plus the waste of tiles that extend past the border. In float32 it loses about half a
// digit against a direct convolution, because transformed values are sums with factors of up to 11; 16-bit values are
// computed in float32 and lose nothing, unless the products read bfloat16. libtorch's convolution is the reference.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainopt::kernels::winograd {

// RECORD_FUNCTION labels of the differentiable form, forward and backward. Each has the input of
// the convolution as its argument.
inline constexpr const char *kConvolutionLabel = "trainopt::winograd_convolution",
                            *kConvolutionGradientLabel = "trainopt::winograd_convolution_backward";

/// Multiplications of the direct convolution ÷ those of this one, for an image of height × width.
double saving(int64_t height, int64_t width);

// Images are [n, channels, height, width], not empty; weights are [outputs, channels, 3, 3]. Both are float64, float32,
// bfloat16 or float16 on the CPU; both are float64 or neither is. Channels are multiples of kPanel (tiles.h). Anything
// else throws BrokenInvariant. Results are new NHWC tensors of the images' type unless stated otherwise. Inputs in
// other layouts are converted first. Results do not depend on the number of threads.

/// What the products of transformed values read.
enum class Products {
  full,     ///< float32, or float64 of float64
  bfloat16  ///< values rounded to bfloat16, with float32 sums: errors of about 1 % in norm. Not for float64.
};

/// Whether this CPU multiplies bfloat16 (AVX512_BF16), at twice the rate of float32. Others convert to float32.
bool has_bfloat16_products();

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, Products products = Products::full);
at::Tensor input_gradient(const at::Tensor& output_gradient, const at::Tensor& weight,
                          Products products = Products::full);
/// The result has type `type`.
at::Tensor weight_gradient(const at::Tensor& output_gradient, const at::Tensor& input, at::ScalarType type,
                           Products products = Products::full);

// Winograd's convolution, differentiable with respect to input and weight. Double backward is unsupported.

/// Like convolution(). Backward computes only the gradients that are needed.
at::Tensor differentiable_convolution(const at::Tensor& input, const at::Tensor& weight,
                                      Products products = Products::full);

}  // namespace trainopt::kernels::winograd
