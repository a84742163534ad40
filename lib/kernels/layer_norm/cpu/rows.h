// The CPU loops of LayerNormKernels, for AVX2 and AVX-512. The rules of norm/cpu/rows.h apply. Each works on one row,
// which stays in the first-level cache from one loop to the next.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

namespace trainopt::kernels {

struct RowMoments {
  float mean, variance;
};
/// Mean and 1 / √(variance + ε).
struct RowScale {
  float mean, rstd;
};
/// Means over a row of g · weight and of g · weight · n.
struct RowMeans {
  float scaled, product;
};

/// T: float, c10::BFloat16, c10::Half. Rows of float32 values are results of widen() or add(), or rows of a tensor.
template <class T>
struct LayerNormRows {
  /// The row as float32: `from` itself, or written to `room`.
  const float* (*widen)(const T* from, int64_t width, float* room);
  void (*narrow)(const float* from, int64_t width, T* to);
  /// sum = residual + branch. Returns the rounded sum as float32: `sum` itself, or written to `room`.
  const float* (*add)(const T* residual, const T* branch, T* sum, int64_t width, float* room);
  /// sum = residual + branch for a residual of another type.
  void (*add_to_float)(const float* residual, const T* branch, float* sum, int64_t width);

  RowMoments (*moments)(const float* values, int64_t width);
  void (*normalize)(const float* values, int64_t width, RowScale by, const float* weight, const float* bias, T* result);

  /// Writes g · weight to `scaled` and adds the row to the sums per column.
  RowMeans (*means)(const T* gradient, const float* values, int64_t width, RowScale by, const float* weight,
                    float* scaled, float* of_bias, float* of_weight);
  /// Adds `of_sum`, unless it is null.
  void (*input_gradient)(const float* scaled, const float* values, const T* of_sum, int64_t width, RowScale by,
                         RowMeans means, T* result);
};

template <class T>
const LayerNormRows<T>& layer_norm_rows_avx2();
template <class T>
const LayerNormRows<T>& layer_norm_rows_avx512();

}  // namespace trainopt::kernels
