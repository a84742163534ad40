#include "kernels/cpu/by_type.h"
#include "kernels/cpu/one.h"
#include "kernels/winograd/cpu/tile_loops.h"

namespace trainopt::kernels::winograd {
template <class T, class P>
const TileKernels<T, P>& tile_kernels() {
  static const TileKernels<T, P>& kernels = []() -> const TileKernels<T, P>& {
    if constexpr (std::is_same_v<P, c10::BFloat16>)
      if (has_avx512_bf16()) return tiles_avx512_bf16<T>();
    return has_avx512() ? tiles_avx512<T, P>() : tiles_avx2<T, P>();
  }();
  return kernels;
}

template <>
const TileKernels<double, double>& tile_kernels() {
  static constexpr TileKernels<double> kKernels = tiles_of<One, double>();
  return kKernels;
}

template const TileKernels<float, float>& tile_kernels();
template const TileKernels<c10::BFloat16, float>& tile_kernels();
template const TileKernels<c10::Half, float>& tile_kernels();
template const TileKernels<float, c10::BFloat16>& tile_kernels();
template const TileKernels<c10::BFloat16, c10::BFloat16>& tile_kernels();
template const TileKernels<c10::Half, c10::BFloat16>& tile_kernels();

}  // namespace trainopt::kernels::winograd
