// The loops of HeadKernels on a CPU, for vectors of eight and of sixteen numbers: as RowKernels, under the same rules.
#pragma once

#include "optimizations/fused_kernels/cpu/row_kernels.h"

namespace trainopt::fused_kernels {

/// Of a row of logits.
struct RowSums {
  float largest, sum, apart;  ///< Σ e^(logit − largest); Σ (largest − logit), where it was asked for
};

/// T: as of RowKernels.
template <class T>
struct HeadRowKernels {
  /// Of one image. `sums`: room for channels + kMostLanes.
  void (*mean)(const T* x, T* result, int64_t pixels, int64_t channels, float* sums);
  void (*mean_gradient)(const T* gradient, T* result, int64_t pixels, int64_t channels);

  /// Of one row; `exponentials` gets e^(logit − largest) of each, and has room for classes + kMostLanes.
  RowSums (*exponentials)(const T* logits, int64_t classes, bool with_apart, float* exponentials);
  /// factor · exponential + offset
  void (*line_of)(const float* exponentials, int64_t classes, float factor, float offset, T* result);
  void (*scale)(T* values, int64_t count, float factor);
};

template <class T>
const HeadRowKernels<T>& head_rows_of_eight();
template <class T>
const HeadRowKernels<T>& head_rows_of_sixteen();

}  // namespace trainopt::fused_kernels
