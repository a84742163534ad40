// The CPU loops of PoolKernels, for AVX2 and AVX-512. The rules of norm/cpu/rows.h apply.
#pragma once

#include "kernels/norm/cpu/rows.h"

namespace trainopt::kernels {

inline constexpr int64_t kWindow = 3, kStride = 2, kPadding = 1;
inline constexpr int kNoPosition = kWindow * kWindow;

struct PoolShape {
  int64_t channels, height, width, pooled_height, pooled_width;
};

/// As in PoolKernels, for one line of an image or `rows` rows. T, `streams`: as in NormRows. Sums are added to the
/// previous contents.
template <class T>
struct PoolRows {
  // Pointers are to the beginning of an image. pool() writes one line of pooled pixels, input_gradient() one line of
  // pixels.
  void (*pool)(const T* x, T* values, uint8_t* positions, T* chosen, const PoolShape& shape, int64_t pooled_line,
               const float* scale, const float* shift);
  void (*input_gradient)(const T* gradient, const uint8_t* positions, const T* x, T* result, const PoolShape& shape,
                         int64_t line, const Combination& by, bool streams);
  void (*sums)(const T* gradient, const uint8_t* positions, const T* chosen, int64_t rows, int64_t channels,
               const float* mean, float* sums, float* products);
};

/// T: as above.
template <class T>
const PoolRows<T>& pool_rows_avx2();
template <class T>
const PoolRows<T>& pool_rows_avx512();

}  // namespace trainopt::kernels
