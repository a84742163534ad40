// Matrix products on CPUs by whichever of libtorch's two libraries is faster. libtorch leaves products of float32 to
// MKL. On AMD CPUs with AVX-512 those of large matrices are faster with oneDNN: on two cores of the fourth EPYC
// generation it took 0.67 of MKL's time for [512, 384] · [384, 50257] and 0.70 to 0.96 of it for the products of the
// linear layers, forward and backward, of a transformer of width 384 with 2048 tokens. For small matrices MKL is
// faster.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainopt {

/// Whether the product of a float32 [m, k] with a float32 [k, n] is oneDNN's in the functions below. `values`: m · k ·
/// n.
bool onednn_is_faster(const at::Tensor& left, const at::Tensor& right, int64_t values);

/// result = a · b, as at::mm_out().
void product_out(at::Tensor& result, const at::Tensor& a, const at::Tensor& b);

/// sum ← sum + factor · a · b, as at::addmm_out().
void add_product_out(at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, double factor);

/// input · weightᵀ + bias by oneDNN, as at::linear() but without a gradient. `input`: … × in; `weight`: out × in;
/// `bias`: out or undefined; float32 on a CPU. Returns … × out.
at::Tensor onednn_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);

/// The operation of libtorch that onednn_linear() calls.
inline constexpr const char* kOnednnLinear = "mkldnn::_linear_pointwise";

}  // namespace trainopt
