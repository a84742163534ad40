#include "kernels/cpu/by_type.h"
#include "kernels/cpu/one.h"
#include "kernels/winograd/cpu/tile_loops.h"

namespace trainopt::kernels::winograd {
template <class T>
const TileKernels<T>& tile_kernels() {
  static const TileKernels<T>& kernels = has_avx512() ? tiles_avx512<T>() : tiles_avx2<T>();
  return kernels;
}

template <>
const TileKernels<double>& tile_kernels() {
  static constexpr TileKernels<double> kKernels = tiles_of<One, double>();
  return kKernels;
}

template const TileKernels<float>& tile_kernels();
template const TileKernels<c10::BFloat16>& tile_kernels();
template const TileKernels<c10::Half>& tile_kernels();

}  // namespace trainopt::kernels::winograd
