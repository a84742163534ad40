// The memory operations of Winograd's convolution. F(4×4, 3×3): images are cut into tiles of 4×4 outputs, each computed
// from 6×6 inputs. A transformed tile has 36 positions, and the convolution becomes a product over channels at each
// position. Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015 (arXiv:1509.09308), §4.3; the
// points of interpolation are others (tile_loops.h).
//
// Uses only raw memory and functions of its own: code compiled for wide vectors must never be used by the rest of the
// program.
#pragma once

#include "kernels/products/products.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

namespace trainopt::kernels::winograd {

inline constexpr int kTile = 4, kKernel = 3,
                     kInputTile = kTile + kKernel - 1;  ///< outputs, taps and inputs of a tile per side
inline constexpr int kPositions = kInputTile * kInputTile;

/// The tiles of a convolution with stride 1 and padding 1: outputs have the height and width of the inputs.
struct Grid {
  int64_t images, height, width;

  [[gnu::always_inline]] int64_t rows() const { return (height + kTile - 1) / kTile; }
  [[gnu::always_inline]] int64_t columns() const { return (width + kTile - 1) / kTile; }
  [[gnu::always_inline]] int64_t tiles() const { return images * rows() * columns(); }
};

/// Type of transformed values, unless their products are to read bfloat16: float64 for float64, otherwise float32.
template <class T>
using Work = Sum<T>;

/// Transformed values, 36 positions of rows × channels in panels: tiles × channels, or, for weights, channels of one
/// side × channels of the other. The number of channels is a multiple of kPanel.
template <class W>
struct Transformed {
  W* at;
  int64_t position, rows, channels;

  [[gnu::always_inline]] Panels<W> at_position(int64_t p) const { return {at + p * position, rows, channels}; }
  [[gnu::always_inline]] W* panel(int64_t p, int64_t c) const { return at_position(p).panel(c); }
  /// These values, with row `first` as row 0. The last `first` rows do not exist.
  [[gnu::always_inline]] Transformed from_row(int64_t first) const {
    return {at + first * kPanel, position, rows, channels};
  }
};

/// T, type of images and weights: double, float, c10::BFloat16, c10::Half. P, type of what products read: Work<T> or
/// c10::BFloat16. Images are NHWC. Functions process tiles [begin, end) of the grid; tile `first` of the grid is row 0
/// of the transformed values. Positions outside the image read as zero and are not written.
template <class T, class P = Work<T>>
struct TileKernels {
  /// Bᵀ d B of the inputs d.
  void (*inputs)(const T* image, const Grid& grid, int64_t first, int64_t begin, int64_t end, const Transformed<P>& to);
  /// Aᵀ m A, the outputs.
  void (*outputs)(const Transformed<Work<T>>& from, const Grid& grid, int64_t first, int64_t begin, int64_t end,
                  T* image);
  /// A y Aᵀ of the outputs' gradients y: the gradient of the loss with respect to m.
  void (*output_gradients)(const T* image, const Grid& grid, int64_t first, int64_t begin, int64_t end,
                           const Transformed<P>& to);
  /// G g Gᵀ of the weights g of rows [begin, end), stored as rows × 3 × 3 × channels; `rotated` rotates them by 180°.
  void (*weights)(const T* weights, bool rotated, int64_t begin, int64_t end, const Transformed<P>& to);
  /// Gᵀ u G, the weights' gradients.
  void (*weight_gradients)(const Transformed<Work<T>>& from, int64_t begin, int64_t end, T* gradients);
};

/// The kernels for the widest vectors of this CPU.
template <class T, class P>
const TileKernels<T, P>& tile_kernels();
template <>
const TileKernels<double, double>& tile_kernels();

// Not for double; with AVX512_BF16 only for P = c10::BFloat16.
template <class T, class P>
const TileKernels<T, P>& tiles_avx2();
template <class T, class P>
const TileKernels<T, P>& tiles_avx512();
template <class T>
const TileKernels<T, c10::BFloat16>& tiles_avx512_bf16();

}  // namespace trainopt::kernels::winograd
