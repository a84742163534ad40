#include "kernels/cpu/avx512.h"
#include "kernels/winograd/cpu/tile_loops.h"

namespace trainopt::kernels::winograd {
namespace {

/// Rounds to bfloat16 in one instruction.
struct Avx512Bf16 : Avx512 {
  using Avx512::store;
  static void store(c10::BFloat16* to, Numbers values) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values)));
  }
};

}  // namespace

template <class T>
const TileKernels<T, c10::BFloat16>& tiles_avx512_bf16() {
  static constexpr TileKernels<T, c10::BFloat16> kKernels = tiles_of<Avx512Bf16, T, c10::BFloat16>();
  return kKernels;
}

template const TileKernels<float, c10::BFloat16>& tiles_avx512_bf16();
template const TileKernels<c10::BFloat16, c10::BFloat16>& tiles_avx512_bf16();
template const TileKernels<c10::Half, c10::BFloat16>& tiles_avx512_bf16();

}  // namespace trainopt::kernels::winograd
