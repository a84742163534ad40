// The CPU loops of GeluKernels, for AVX2 and AVX-512. The rules of norm/cpu/rows.h apply.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

namespace trainopt::kernels {

/// T: float, c10::BFloat16, c10::Half. `bias` and the sums have room for kMaxLanes more values past the end.
template <class T>
struct GeluRows {
  void (*forward)(bool tanh, const T* x, const float* bias, T* y, int64_t rows, int64_t width);
  /// Adds to the sums of each column.
  void (*backward)(bool tanh, const T* gradient, const T* x, const float* bias, T* of_x, int64_t rows, int64_t width,
                   float* of_bias);
};

template <class T>
const GeluRows<T>& gelu_rows_avx2();
template <class T>
const GeluRows<T>& gelu_rows_avx512();

}  // namespace trainopt::kernels
