// The loops of PoolKernels on a CPU, for AVX2 and for AVX-512, under the rules of norm/cpu/rows.h.
#pragma once

#include "kernels/norm/cpu/rows.h"

namespace trainopt::kernels {

inline constexpr int64_t kWindow = 3, kStride = 2, kPadding = 1;
inline constexpr int kNowhere = kWindow * kWindow;

struct PoolShape {
  int64_t channels, height, width, pooled_height, pooled_width;
};

/// As PoolKernels has them, for one line of an image or `rows` rows. T: as of NormRows. What is summed is added to the
/// sums.
template <class T>
struct PoolRows {
  // Pointers are to the beginning of an image; a line of its pooled or of its own pixels is written.
  void (*pool)(const T* x, T* values, uint8_t* positions, T* chosen, const PoolShape& shape, int64_t pooled_line,
               const float* scale, const float* shift);
  void (*input_gradient)(const T* gradient, const uint8_t* positions, const T* x, T* result, const PoolShape& shape,
                         int64_t line, const Combination& by);
  void (*sums)(const T* gradient, const uint8_t* positions, const T* chosen, int64_t rows, int64_t channels,
               const float* mean, float* sums, float* products);
};

/// T: as above.
template <class T>
const PoolRows<T>& pool_rows_avx2();
template <class T>
const PoolRows<T>& pool_rows_avx512();

}  // namespace trainopt::kernels
