#include "kernels/cpu/avx2.h"
#include "kernels/winograd/cpu/tile_loops.h"

namespace trainopt::kernels::winograd {

template <class T>
const TileKernels<T>& tiles_avx2() {
  static constexpr TileKernels<T> kKernels = tiles_of<Avx2, T>();
  return kKernels;
}

template const TileKernels<float>& tiles_avx2();
template const TileKernels<c10::BFloat16>& tiles_avx2();
template const TileKernels<c10::Half>& tiles_avx2();

}  // namespace trainopt::kernels::winograd
