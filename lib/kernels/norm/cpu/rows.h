// The CPU loops of NormKernels over rows of channels: compiled once for AVX2, which the program requires, and once for
// AVX-512, which is selected at run time. They use only raw memory and functions of their own: code compiled for wide
// vectors must never be used by the rest of the program.
//
// Per-channel values are float32, with room for kMaxLanes (kernels/cpu/row_loops.h) more past the end.
#pragma once

#include "kernels/norm/gate.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

namespace trainopt::kernels {

/// of_gradient · g + of_x · x + rest
struct Combination {
  const float *of_gradient, *of_x, *rest;
};

/// As in NormKernels, for `rows` rows. T: float, c10::BFloat16, c10::Half. Sums are added to the previous contents.
/// `streams`: results are written past the caches (streams(), kernels/cpu/pieces.h).
template <class T>
struct NormRows {
  /// Sums of x − pivot and of its square.
  void (*moments)(const T* x, int64_t rows, int64_t channels, const float* pivot, float* sums, float* squares);
  /// `residual`: null for none.
  void (*apply)(const T* x, const T* residual, T* y, int64_t rows, int64_t channels, const float* scale,
                const float* shift, bool relu, bool streams);
  /// Only Gate::output uses `output` and `passed` (the destination of the gated gradient); only Gate::relu uses scale
  /// and shift.
  void (*sums)(Gate gate, const T* gradient, const T* x, const T* output, T* passed, int64_t rows, int64_t channels,
               const float* mean, const float* scale, const float* shift, float* sums, float* products);
  /// Gate: open or relu.
  void (*input_gradient)(Gate gate, const T* gradient, const T* x, T* result, int64_t rows, int64_t channels,
                         const Combination& by, const float* scale, const float* shift, bool streams);
};

/// T: as above.
template <class T>
const NormRows<T>& norm_rows_avx2();
template <class T>
const NormRows<T>& norm_rows_avx512();

}  // namespace trainopt::kernels
