#include "kernels/cpu/avx512.h"
#include "optimizations/winograd/cpu/product_loops.h"
#include "optimizations/winograd/cpu/tile_loops.h"

namespace trainopt::winograd {

using kernels::Avx512;

template <class T>
const TileKernels<T>& tiles_of_sixteen() {
  static constexpr TileKernels<T> kKernels = tiles_of<Avx512, T>();
  return kKernels;
}

template const TileKernels<float>& tiles_of_sixteen();
template const TileKernels<c10::BFloat16>& tiles_of_sixteen();
template const TileKernels<c10::Half>& tiles_of_sixteen();

const ProductKernels<float>& products_of_sixteen() {
  static constexpr ProductKernels<float> kKernels = products_of<Avx512, 12, 8, 2, float>();
  return kKernels;
}

}  // namespace trainopt::winograd
