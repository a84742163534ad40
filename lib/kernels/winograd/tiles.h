// What Winograd's convolution does to memory, without its matrix products. F(4×4, 3×3): images are cut into tiles of
// 4×4 outputs, each of which follows from 6×6 inputs; transformed, a tile has 36 positions, and what was a convolution
// is, at each position, a product over channels. Formulas and matrices: Lavin and Gray, "Fast Algorithms for
// Convolutional Neural Networks", 2015 (arXiv:1509.09308), §4.3.
//
// Raw memory and functions of their own only: what is compiled for wide vectors must never serve the rest of the
// program.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <type_traits>

namespace trainopt::kernels::winograd {

inline constexpr int kTile = 4, kKernel = 3,
                     kReach = kTile + kKernel - 1;  ///< outputs, taps and inputs of a tile, along one side
inline constexpr int kPositions = kReach * kReach;
inline constexpr int64_t kPanel = 16;  ///< channels come in multiples of this

/// Of a convolution with stride 1 and padding 1: outputs are as high and wide as inputs.
struct Grid {
  int64_t images, height, width;

  [[gnu::always_inline]] int64_t rows() const { return (height + kTile - 1) / kTile; }
  [[gnu::always_inline]] int64_t columns() const { return (width + kTile - 1) / kTile; }
  [[gnu::always_inline]] int64_t tiles() const { return images * rows() * columns(); }
};

/// What transformed numbers are: float64 of float64, otherwise float32.
template <class T>
using Work = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Transformed numbers, 36 positions of rows × channels: tiles × channels, or a weight's channels on one side × those
/// on the other. Sixteen channels lie together, row after row, so that products read memory in its order: at[p *
/// position + (c / 16 * rows + row) * 16 + c % 16].
template <class W>
struct Transformed {
  W* at;
  int64_t position, rows, channels;

  [[gnu::always_inline]] W* panel(int64_t p, int64_t c) const { return at + p * position + c / kPanel * rows * kPanel; }
};

/// T: double, float, c10::BFloat16, c10::Half. Images are NHWC; tiles [begin, end) of the grid, whose tile `first` is
/// the first row of the transformed ones. What lies outside of an image reads as zeros and is not written.
template <class T>
struct TileKernels {
  /// Bᵀ d B of the inputs d.
  void (*inputs)(const T* image, const Grid& grid, int64_t first, int64_t begin, int64_t end,
                 const Transformed<Work<T>>& to);
  /// Aᵀ m A, the outputs.
  void (*outputs)(const Transformed<Work<T>>& from, const Grid& grid, int64_t first, int64_t begin, int64_t end,
                  T* image);
  /// A y Aᵀ of the outputs' gradients y: what the loss's derivative by m is.
  void (*output_gradients)(const T* image, const Grid& grid, int64_t first, int64_t begin, int64_t end,
                           const Transformed<Work<T>>& to);
  /// G g Gᵀ of the weights g of rows [begin, end), stored as rows × 3 × 3 × channels; `turned` by half a turn.
  void (*weights)(const T* weights, bool turned, int64_t begin, int64_t end, const Transformed<Work<T>>& to);
  /// Gᵀ u G, the weights' gradients.
  void (*weight_gradients)(const Transformed<Work<T>>& from, int64_t begin, int64_t end, T* gradients);
};

/// What is done at one position. W: double, float.
template <class W>
struct ProductKernels {
  /// to[t][k] = Σ a[t][c] · b[c][k] over channels c of a, for rows t of [begin, end).
  void (*product)(const Transformed<W>& a, const Transformed<W>& b, int64_t position, int64_t begin, int64_t end,
                  const Transformed<W>& to);
  /// to[k][c] = Σ a[t][k] · b[t][c] over the first `rows` rows t, for channels k of [begin, end), multiples of kPanel;
  /// `add`: to what is there.
  void (*outer_product)(const Transformed<W>& a, const Transformed<W>& b, int64_t position, int64_t rows, int64_t begin,
                        int64_t end, bool add, const Transformed<W>& to);
};

/// In the widest vectors that this CPU has.
template <class T>
const TileKernels<T>& tile_kernels();
template <class W>
const ProductKernels<W>& product_kernels();

template <class T>
const TileKernels<T>& tiles_avx2();  // not of double
template <class T>
const TileKernels<T>& tiles_avx512();
const ProductKernels<float>& products_avx2();
const ProductKernels<float>& products_avx512();

}  // namespace trainopt::kernels::winograd
