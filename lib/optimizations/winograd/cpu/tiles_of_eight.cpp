#include "kernels/cpu/avx2.h"
#include "optimizations/winograd/cpu/product_loops.h"
#include "optimizations/winograd/cpu/tile_loops.h"

namespace trainopt::winograd {

using kernels::Avx2;

template <class T>
const TileKernels<T>& tiles_of_eight() {
  static constexpr TileKernels<T> kKernels = tiles_of<Avx2, T>();
  return kKernels;
}

template const TileKernels<float>& tiles_of_eight();
template const TileKernels<c10::BFloat16>& tiles_of_eight();
template const TileKernels<c10::Half>& tiles_of_eight();

const ProductKernels<float>& products_of_eight() {
  static constexpr ProductKernels<float> kKernels = products_of<Avx2, 6, 6, 1, float>();
  return kKernels;
}

}  // namespace trainopt::winograd
