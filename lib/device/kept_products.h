// The results of matrix products and convolutions, kept from one computation for its repetition, which then computes
// everything else but not these. They are libtorch's operations addmm, mm, convolution, _scaled_mm and oneDNN's linear;
// the products within attention (bmm) are not among them, because their results take tokens² values.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace trainopt {

/// The results of one computation's products, in its order. Undefined: to be computed again.
using Products = std::vector<at::Tensor>;

/// During its lifetime, collects the products that this thread computes.
class KeepProducts {
 public:
  KeepProducts();
  ~KeepProducts();
  KeepProducts(const KeepProducts&) = delete;
  KeepProducts& operator=(const KeepProducts&) = delete;

  /// The results, but undefined ones for those that were overwritten in place since. Call once.
  Products take();

 private:
  struct Kept;
  std::unique_ptr<Kept> kept_;
};

/// During its lifetime, the products of this thread are these, in their order: what has a result is not computed, but
/// is differentiable as if it had been. Each result is used once.
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
