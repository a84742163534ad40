// The loops of the fused kernels, over rows of channels: once for vectors of eight numbers (AVX2, which the program
// requires) and once for sixteen (AVX-512), chosen at run time. Raw memory and functions of their own only: what is
// compiled for wide vectors must never serve the rest of the program.
//
// Values by channel are float32, with room for kMostLanes more behind the last.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

namespace trainopt::fused_kernels {

inline constexpr int64_t kMostLanes = 16;

/// Which part of the gradient counts: all; where scale · x + shift is positive; where the output is.
enum class Gate { open, relu, output };

inline constexpr int64_t kWindow = 3, kStride = 2, kPadding = 1;  ///< of the stem's max-pool
inline constexpr int kNowhere = kWindow * kWindow;

struct PoolShape {
  int64_t channels, height, width, pooled_height, pooled_width;
};

/// of_gradient · g + of_x · x + rest
struct Combination {
  const float *of_gradient, *of_x, *rest;
};

/// As NormKernels has them, for `rows` rows or one line of an image. T: float, c10::BFloat16, c10::Half. What is summed
/// is added to the sums.
template <class T>
struct RowKernels {
  /// Of x − pivot, and of its square.
  void (*moments)(const T* x, int64_t rows, int64_t channels, const float* pivot, float* sums, float* squares);
  /// `residual`: null for none.
  void (*apply)(const T* x, const T* residual, T* y, int64_t rows, int64_t channels, const float* scale,
                const float* shift, bool relu);
  /// `output` and `passed` (where the gated gradient goes) are used by Gate::output alone, scale and shift by
  /// Gate::relu.
  void (*sums)(Gate gate, const T* gradient, const T* x, const T* output, T* passed, int64_t rows, int64_t channels,
               const float* mean, const float* scale, const float* shift, float* sums, float* products);
  /// Gate: open or relu.
  void (*input_gradient)(Gate gate, const T* gradient, const T* x, T* result, int64_t rows, int64_t channels,
                         const Combination& by, const float* scale, const float* shift);

  // Pointers are to the beginning of an image; a line of its pooled or of its own pixels is written.
  void (*pool)(const T* x, T* values, uint8_t* places, T* chosen, const PoolShape& shape, int64_t pooled_line,
               const float* scale, const float* shift);
  void (*input_gradient_through_pool)(const T* gradient, const uint8_t* places, const T* x, T* result,
                                      const PoolShape& shape, int64_t line, const Combination& by);
  void (*sums_through_pool)(const T* gradient, const uint8_t* places, const T* chosen, int64_t rows, int64_t channels,
                            const float* mean, float* sums, float* products);
};

/// T: as above.
template <class T>
const RowKernels<T>& rows_of_eight();
template <class T>
const RowKernels<T>& rows_of_sixteen();

}  // namespace trainopt::fused_kernels
