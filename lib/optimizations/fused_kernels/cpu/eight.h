// Eight numbers of memory as float32 and back (AVX2, FMA, F16C: x86-64-v3, which the program requires).
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

namespace trainopt::fused_kernels {

inline constexpr int64_t kEight = 8;

inline __m256 load(const float* from) { return _mm256_loadu_ps(from); }
inline __m256 load(const c10::BFloat16* from) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))), 16));
}
inline __m256 load(const c10::Half* from) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))); }
/// Places in a pooling window.
inline __m256i load(const uint8_t* from) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))); }

// Rounded to nearest, ties to even.
inline void store(float* to, __m256 values) { _mm256_storeu_ps(to, values); }
inline void store(c10::BFloat16* to, __m256 values) {
  const __m256i bits = _mm256_castps_si256(values), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
  // NaN must not round to infinity.
  const __m256i number = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_ORD_Q));
  const __m256i kept = _mm256_blendv_epi8(_mm256_set1_epi32(0x7fc0), rounded, number);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(kept, kept), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
}
inline void store(c10::Half* to, __m256 values) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT)); }
inline void store(uint8_t* to, __m256i values) {
  const __m256i shorts = _mm256_permute4x64_epi64(_mm256_packus_epi32(values, values), 0x08);
  const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(shorts), _mm256_castsi256_si128(shorts));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), bytes);
}

/// How many of eight there are: all, or the rest of a row, whose missing ones read as zeros and are not written.
struct Whole {
  template <class T>
  auto take(const T* from) const { return load(from); }
  template <class T, class V>
  void put(T* to, V values) const { store(to, values); }
};
struct Part {
  int64_t count;
  template <class T>
  auto take(const T* from) const {
    alignas(32) T room[kEight] = {};
    std::copy_n(from, count, room);
    return load(static_cast<const T*>(room));
  }
  template <class T, class V>
  void put(T* to, V values) const {
    alignas(32) T room[kEight];
    store(static_cast<T*>(room), values);
    std::copy_n(static_cast<const T*>(room), count, to);
  }
};

/// Calls work(first channel, Whole or Part) for all of a row's channels.
template <class F>
void each_eight(int64_t channels, const F& work) {
  int64_t c = 0;
  for (; c + kEight <= channels; c += kEight) work(c, Whole());
  if (c < channels) work(c, Part{channels - c});
}

inline __m256 where(__m256 mask, __m256 values) { return _mm256_and_ps(mask, values); }
inline __m256 equal(__m256i a, int b) { return _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, _mm256_set1_epi32(b))); }
inline __m256 positive(__m256 values) { return _mm256_cmp_ps(values, _mm256_setzero_ps(), _CMP_GT_OQ); }
/// max(values, 0) that lets NaN through.
inline __m256 relu_of(__m256 values) { return _mm256_and_ps(values, _mm256_cmp_ps(values, _mm256_setzero_ps(), _CMP_NLE_UQ)); }

}  // namespace trainopt::fused_kernels
