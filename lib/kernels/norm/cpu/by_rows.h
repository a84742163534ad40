// Code that norm and pool share on a CPU: tensors as rows of channels.
#pragma once

#include "base/error.h"
#include "device/tensor.h"
#include "kernels/cpu/by_type.h"
#include "kernels/cpu/pieces.h"
#include "kernels/norm/norm.h"

namespace trainopt::kernels::by_rows {

using TwoSums = Sums<2>;

struct Rows {
  int64_t count, channels;
};

/// A channels-last tensor as rows of channels.
inline Rows rows_of(const at::Tensor& x) {
  TRAINOPT_CHECK(x.dim() == 4 && x.is_cpu() && x.is_contiguous(at::MemoryFormat::ChannelsLast));
  return {x.size(0) * x.size(2) * x.size(3), x.size(1)};
}
/// Checks that both tensors have the same shape and type.
inline Rows rows_of(const at::Tensor& x, const at::Tensor& other) {
  rows_of(other);
  TRAINOPT_CHECK(x.scalar_type() == other.scalar_type() && x.sizes() == other.sizes());
  return rows_of(x);
}

inline at::Tensor image(const at::Tensor& x, at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, x.options().dtype(type).memory_format(at::MemoryFormat::ChannelsLast).requires_grad(false));
}
inline at::Tensor like(const at::Tensor& x) { return image(x, x.sizes(), x.scalar_type()); }
inline at::Tensor by_channel(const at::Tensor& x) {
  return at::empty({x.size(1)},
                   x.options().dtype(at::kFloat).memory_format(at::MemoryFormat::Contiguous).requires_grad(false));
}

/// kernels::coefficients_of() from these sums, as tensors like x.
inline Coefficients coefficients_of(const TwoSums& sums, const at::Tensor& x, const Statistics& by, int64_t count) {
  at::Tensor gradient = by_channel(x), product = by_channel(x);
  std::copy(sums[0].begin(), sums[0].end(), gradient.mutable_data_ptr<float>());
  std::copy(sums[1].begin(), sums[1].end(), product.mutable_data_ptr<float>());
  return kernels::coefficients_of(gradient, product, by, count);
}

}  // namespace trainopt::kernels::by_rows
