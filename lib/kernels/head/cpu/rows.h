// The CPU loops of HeadKernels, for AVX2 and AVX-512. The rules of norm/cpu/rows.h apply.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

namespace trainopt::kernels {

/// Results for one row of logits.
struct RowSums {
  float largest, sum, gap_sum;  ///< Σ e^(logit − largest); Σ (largest − logit), if requested
};

/// T: float, c10::BFloat16, c10::Half.
template <class T>
struct HeadRows {
  /// For one image. `sums`: work space for channels + kMaxLanes values.
  void (*mean)(const T* x, T* result, int64_t pixels, int64_t channels, float* sums);
  void (*mean_gradient)(const T* gradient, T* result, int64_t pixels, int64_t channels);

  /// For one row. Writes e^(logit − largest) of each class to `exponentials`, which has room for classes + kMaxLanes
  /// values.
  RowSums (*exponentials)(const T* logits, int64_t classes, bool with_gap_sum, float* exponentials);
  /// factor · exponential + offset
  void (*scale_shift)(const float* exponentials, int64_t classes, float factor, float offset, T* result);
  void (*scale)(T* values, int64_t count, float factor);
};

template <class T>
const HeadRows<T>& head_rows_avx2();
template <class T>
const HeadRows<T>& head_rows_avx512();

}  // namespace trainopt::kernels
