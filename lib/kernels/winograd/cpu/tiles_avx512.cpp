#include "kernels/cpu/avx512.h"
#include "kernels/winograd/cpu/tile_loops.h"

namespace trainopt::kernels::winograd {

template <class T, class P>
const TileKernels<T, P>& tiles_avx512() {
  static constexpr TileKernels<T, P> kKernels = tiles_of<Avx512, T, P>();
  return kKernels;
}

template const TileKernels<float, float>& tiles_avx512();
template const TileKernels<c10::BFloat16, float>& tiles_avx512();
template const TileKernels<c10::Half, float>& tiles_avx512();
template const TileKernels<float, c10::BFloat16>& tiles_avx512();
template const TileKernels<c10::BFloat16, c10::BFloat16>& tiles_avx512();
template const TileKernels<c10::Half, c10::BFloat16>& tiles_avx512();

}  // namespace trainopt::kernels::winograd
