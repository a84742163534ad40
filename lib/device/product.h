// Matrix products on CPUs by whichever of libtorch's two libraries is faster. libtorch leaves products of float32 to
// MKL. On AMD CPUs with AVX-512 those of large matrices are faster with oneDNN: on two cores of the fourth EPYC
// generation it took 0.67 of MKL's time for [512, 384] · [384, 50257] and 0.70 to 0.96 of it for the products of the
// linear layers, forward and backward, of a transformer of width 384 with 2048 tokens. For small matrices MKL is
// faster.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

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

// The results of matrix products and convolutions, kept from one computation for its repetition, which then computes
// everything else but not these. They are libtorch's operations addmm, mm, convolution, _scaled_mm and oneDNN's linear.
// Results of bmm are not kept, because within attention they take tokens² values.

/// What identifies a product: the operation, and the sizes of the tensors that it takes.
struct ProductCall {
  std::string operation;
  std::vector<std::vector<int64_t>> sizes;
  bool operator==(const ProductCall&) const = default;
};

/// The products of one computation, in its order.
struct Products {
  std::vector<ProductCall> calls;
  std::vector<at::Tensor> results;  ///< one for each call. Undefined: to be computed again
};

/// During its lifetime, collects the products that this thread computes.
class KeepProducts {
 public:
  KeepProducts();
  ~KeepProducts();
  KeepProducts(const KeepProducts&) = delete;
  KeepProducts& operator=(const KeepProducts&) = delete;

  /// The products. Results that were overwritten in place since are undefined. Call once.
  Products take();

 private:
  struct Kept;
  std::unique_ptr<Kept> kept_;
};

/// During its lifetime, the products of this thread are these, in their order: what has a result is not computed, but
/// is differentiable as if it had been. Each result is used once. From the first call that differs from the kept one
/// on, all are computed: libtorch chooses some products by whether a tensor needs a gradient.
class RepeatProducts {
 public:
  explicit RepeatProducts(Products products);
  ~RepeatProducts();
  RepeatProducts(const RepeatProducts&) = delete;
  RepeatProducts& operator=(const RepeatProducts&) = delete;

 private:
  struct Repeated;
  std::unique_ptr<Repeated> repeated_;
};

/// Stands for a result whose value is not needed: a view of one NaN, so that an error would show, with the sizes and
/// type of `result`.
at::Tensor without_values(const at::Tensor& result);

}  // namespace trainopt
