#include "kernels/cpu/avx512.h"
#include "kernels/winograd/cpu/tile_loops.h"

namespace trainopt::kernels::winograd {

template <class T>
const TileKernels<T>& tiles_avx512() {
  static constexpr TileKernels<T> kKernels = tiles_of<Avx512, T>();
  return kKernels;
}

template const TileKernels<float>& tiles_avx512();
template const TileKernels<c10::BFloat16>& tiles_avx512();
template const TileKernels<c10::Half>& tiles_avx512();

}  // namespace trainopt::kernels::winograd
