#include "optimizations/fp8/scaled_matrix.h"

#include "base/error.h"
#include "device/tensor.h"

#include <ATen/ops/_scaled_mm.h>

#include <limits>

namespace trainopt::fp8 {
namespace {

constexpr double kLargestE4m3 = 448, kLargestE5m2 = 57344;
constexpr double kSmallestAmax = 1e-30;  // a matrix of zeros needs a scale, too, and its inverse must be finite

}  // namespace

at::Tensor amax(const at::Tensor& matrix, Scaling scaling) {
  const std::vector<int64_t> over = scaling == Scaling::rowwise ? std::vector<int64_t>{1} : std::vector<int64_t>{0, 1};
  return at::linalg_vector_norm(matrix, std::numeric_limits<double>::infinity(), over, /*keepdim=*/true, at::kFloat);
}

ScaledMatrix quantise(const at::Tensor& matrix, at::ScalarType format, const at::Tensor& amax) {
  TRAINOPT_CHECK(matrix.dim() == 2 && matrix.is_contiguous());
  const double largest = format == kE4m3 ? kLargestE4m3 : kLargestE5m2;
  const at::Tensor scale = amax.clamp_min(kSmallestAmax) / largest;
  return {(matrix / scale).clamp_(-largest, largest).to(format), scale};
}

at::Tensor transposed(const at::Tensor& matrix) {
  const int64_t rows = matrix.size(0), padded = (rows + kMultiple - 1) / kMultiple * kMultiple;
  if (rows == padded) return matrix.t().contiguous();
  const at::Tensor result = at::zeros({matrix.size(1), padded}, matrix.options());
  result.narrow(1, 0, rows).copy_(matrix.t());
  return result;
}

at::Tensor product(const ScaledMatrix& a, const ScaledMatrix& b, at::ScalarType out, Sums sums) {
  const bool of_rows = a.scale.numel() > 1;
  return at::_scaled_mm(a.values, b.values.t(), a.scale, b.scale.t(), {}, {}, of_rows ? at::kBFloat16 : out,
                        of_rows || sums == Sums::fast)
      .to(out);
}

at::Tensor emulated_product(const ScaledMatrix& a, const ScaledMatrix& b, at::ScalarType out, Sums) {
  return (at::mm(a.values.to(at::kFloat), b.values.to(at::kFloat).t()) * a.scale * b.scale.t()).to(out);
}

}  // namespace trainopt::fp8
