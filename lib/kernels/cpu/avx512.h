// Loads and stores sixteen values as float32, whatever their type in memory (AVX-512 F, BW, VL, DQ). The same
// operations as Avx2.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <immintrin.h>
#include <type_traits>

namespace trainopt::kernels {
namespace {

struct FloatKeys;
template <class T>
struct HalfKeys;

struct Avx512 {
  template <class T>
  using Order = std::conditional_t<std::is_same_v<T, float>, FloatKeys, HalfKeys<T>>;
  using Number = float;
  using Numbers = __m512;
  using Positions = __m512i;
  using Mask = __mmask16;
  static constexpr int64_t kLanes = 16;

  static Numbers load(const float* from) { return _mm512_loadu_ps(from); }
  static Numbers load(const c10::BFloat16* from) {
    return widened<c10::BFloat16>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static Numbers load(const c10::Half* from) {
    return widened<c10::Half>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static Positions load(const uint8_t* from) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static Numbers load(const float* from, int64_t count) { return _mm512_maskz_loadu_ps(first(count), from); }
  static Numbers load(const c10::BFloat16* from, int64_t count) {
    return widened<c10::BFloat16>(_mm256_maskz_loadu_epi16(first(count), from));
  }
  static Numbers load(const c10::Half* from, int64_t count) {
    return widened<c10::Half>(_mm256_maskz_loadu_epi16(first(count), from));
  }
  static Positions load(const uint8_t* from, int64_t count) {
    return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(first(count), from));
  }

  template <class T>
  static Numbers widened(__m256i halves) {
    if constexpr (std::is_same_v<T, c10::Half>)
      return _mm512_cvtph_ps(halves);
    else
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }

  // Rounded to nearest, ties to even.
  static void store(float* to, Numbers values) { _mm512_storeu_ps(to, values); }
  static void store(c10::BFloat16* to, Numbers values) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), narrowed(values));
  }
  static void store(c10::Half* to, Numbers values) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
  }
  static void store(uint8_t* to, Positions values) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(values));
  }
  static void stream(float* to, Numbers values) { _mm512_stream_ps(to, values); }
  template <class T>
  static void stream(T* to, Numbers values) {
    alignas(32) T narrow[kLanes];
    store(static_cast<T*>(narrow), values);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), _mm256_load_si256(reinterpret_cast<const __m256i*>(narrow)));
  }
  static void end_streaming() { _mm_sfence(); }
  static void store(float* to, Numbers values, int64_t count) { _mm512_mask_storeu_ps(to, first(count), values); }
  static void store(c10::BFloat16* to, Numbers values, int64_t count) {
    _mm256_mask_storeu_epi16(to, first(count), narrowed(values));
  }
  static void store(c10::Half* to, Numbers values, int64_t count) {
    _mm256_mask_storeu_epi16(to, first(count), _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
  }
  static void store(uint8_t* to, Positions values, int64_t count) {
    _mm_mask_storeu_epi8(to, first(count), _mm512_cvtepi32_epi8(values));
  }

  static Numbers zero() { return _mm512_setzero_ps(); }
  static Numbers of(float number) { return _mm512_set1_ps(number); }
  static Positions all(int position) { return _mm512_set1_epi32(position); }
  static Numbers multiply_add(Numbers a, Numbers b, Numbers c) { return _mm512_fmadd_ps(a, b, c); }
  static Numbers larger(Numbers a, Numbers b) { return _mm512_max_ps(a, b); }
  static Numbers smaller(Numbers a, Numbers b) { return _mm512_min_ps(a, b); }
  static Numbers magnitude(Numbers values) { return _mm512_abs_ps(values); }
  static Numbers reciprocal(Numbers values) {
    const Numbers near = _mm512_rcp14_ps(values);
    return multiply_add(near, _mm512_fnmadd_ps(values, near, of(1)), near);
  }
  static Numbers near_reciprocal(Numbers values) { return _mm512_rcp14_ps(values); }
  static Numbers rounded(Numbers values) {
    return _mm512_roundscale_ps(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static Numbers times_two_to(Numbers values, Numbers n) { return _mm512_scalef_ps(values, n); }
  static Numbers times_two_to_or_zero(Numbers values, Numbers n) { return times_two_to(values, n); }
  static float largest(Numbers values) { return _mm512_reduce_max_ps(values); }
  static float total(Numbers values) { return _mm512_reduce_add_ps(values); }
  static Mask first(int64_t count) { return static_cast<Mask>((1u << count) - 1); }
  static Mask greater(Numbers a, Numbers b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
  static Mask nan_in(Numbers a, Numbers b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q); }
  static Mask either(Mask a, Mask b) { return _kor_mask16(a, b); }
  static Numbers nan() { return _mm512_castsi512_ps(all(0x7fc00000)); }
  static Mask equal(Positions a, int b) { return _mm512_cmpeq_epi32_mask(a, all(b)); }
  static Numbers where(Mask mask, Numbers values) {
    // Forces the load into a register: a masked load would wait for the mask, and so for the load that the mask depends
    // on.
    asm("" : "+v"(values));
    return _mm512_maskz_mov_ps(mask, values);
  }
  static Numbers except(Mask mask, Numbers values) { return where(static_cast<Mask>(~mask), values); }
  static Numbers choose(Mask mask, Numbers yes, Numbers no) { return _mm512_mask_mov_ps(no, mask, yes); }
  static Positions choose(Mask mask, Positions yes, Positions no) { return _mm512_mask_mov_epi32(no, mask, yes); }
  static Numbers relu(Numbers values) { return where(_mm512_cmp_ps_mask(values, zero(), _CMP_NLE_UQ), values); }

 private:
  static __m256i narrowed(Numbers values) {
    const __m512i bits = _mm512_castps_si512(values),
                  odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    // NaN must not round to infinity.
    const __m512i kept =
        _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fc00000));
    // The upper halves. One permutation is faster than a shift and a conversion.
    alignas(32) static constexpr int16_t kUpper[16] = {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
    const __m512i upper = _mm512_castsi256_si512(_mm256_load_si256(reinterpret_cast<const __m256i*>(kUpper)));
    return _mm512_castsi512_si256(_mm512_permutexvar_epi16(upper, kept));
  }
};

/// Values in memory as sort keys. For a scale that is neither 0 nor infinite, the x with the largest scale · x + shift
/// has the largest key, and equal values of x have equal keys.
struct FloatKeys : Avx512 {
  using Keys = Numbers;

  /// The sign bits to flip, so that x increases with scale · x.
  static Keys signs(const float* scale) { return _mm512_and_ps(_mm512_loadu_ps(scale), _mm512_set1_ps(-0.0f)); }
  static Keys load(const float* from, Keys signs) { return _mm512_xor_ps(_mm512_loadu_ps(from), signs); }
  static Keys samples(Keys keys, Keys signs) { return _mm512_xor_ps(keys, signs); }
  static Keys part(Keys samples, int) { return samples; }
  using Avx512::store;
  static void store(float* to, const Numbers (&values)[1]) { store(to, values[0]); }
  static Mask joined(const Mask (&masks)[1]) { return masks[0]; }

  /// Where a column of three contains NaN.
  using Nan = Mask;
  static Nan nan_of(Keys a, Keys b, Keys c) { return either(nan_in(a, b), nan_in(c, c)); }
  /// `best`, or NaN where one of the three columns contains it.
  static Keys with_nan(Keys best, Nan a, Nan b, Nan c) { return choose(either(either(a, b), c), nan(), best); }
};

/// Integer keys: 16-bit floats sort like integers once the bits of negative ones are inverted.
template <class T>
struct HalfKeys {
  using Keys = __m512i;
  using Positions = __m512i;
  using Mask = __mmask32;
  static constexpr int64_t kLanes = 32;
  static constexpr int16_t kInfinity = std::is_same_v<T, c10::Half> ? 0x7c00 : 0x7f80;

  static Keys signs(const float* scale) {
    const auto negative = [](const float* from) {
      return static_cast<Mask>(_mm512_movepi32_mask(_mm512_castps_si512(_mm512_loadu_ps(from))));
    };
    return _mm512_maskz_set1_epi16(negative(scale) | negative(scale + 16) << 16, static_cast<int16_t>(0x8000));
  }
  static Keys load(const T* from, Keys signs) {
    const __m512i bits = _mm512_xor_si512(_mm512_loadu_si512(from), signs), below = _mm512_srai_epi16(bits, 15);
    return _mm512_sub_epi16(turned(bits, below), below);  // −0 becomes 0
  }
  static __m512i samples(Keys keys, Keys signs) {
    const __m512i below = _mm512_srai_epi16(keys, 15);
    return _mm512_xor_si512(turned(_mm512_add_epi16(keys, below), below), signs);
  }
  static __m512 part(__m512i samples, int half) {
    return Avx512::widened<T>(half == 0 ? _mm512_castsi512_si256(samples) : _mm512_extracti64x4_epi64(samples, 1));
  }
  static void store(T* to, __m512i samples) { _mm512_storeu_si512(to, samples); }
  /// Rounded as in Avx512::store(). A NaN must come from a 16-bit sample, so that it needs no rounding.
  static void store(T* to, const __m512 (&values)[2]) {
    if constexpr (std::is_same_v<T, c10::Half>) {
      const auto narrowed = [](__m512 part) { return _mm512_cvtps_ph(part, _MM_FROUND_TO_NEAREST_INT); };
      store(to, _mm512_inserti64x4(_mm512_castsi256_si512(narrowed(values[0])), narrowed(values[1]), 1));
    } else {
      alignas(64) static constexpr int16_t kUpper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                         23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                         45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
      const auto rounded = [](__m512 part) {
        const __m512i bits = _mm512_castps_si512(part),
                      odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        return _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
      };
      store(to, _mm512_permutex2var_epi16(rounded(values[0]), _mm512_load_si512(kUpper), rounded(values[1])));
    }
  }
  static void store(uint8_t* to, Positions positions) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi16_epi8(positions));
  }
  static Positions all(int position) { return _mm512_set1_epi16(static_cast<int16_t>(position)); }
  static Mask greater(Keys a, Keys b) { return _mm512_cmpgt_epi16_mask(a, b); }
  static Keys choose(Mask mask, Keys yes, Keys no) { return _mm512_mask_mov_epi16(no, mask, yes); }
  static Mask joined(const __mmask16 (&masks)[2]) { return _cvtmask16_u32(masks[0]) | _cvtmask16_u32(masks[1]) << 16; }

  /// The smallest key. A NaN with a key above that of ∞ is the best anyway; any other has a key below that of −∞.
  using Nan = Keys;
  static Nan nan_of(Keys a, Keys b, Keys c) { return _mm512_min_epi16(_mm512_min_epi16(a, b), c); }
  static Keys with_nan(Keys best, Nan a, Nan b, Nan c) {
    return choose(_mm512_cmplt_epi16_mask(nan_of(a, b, c), _mm512_set1_epi16(-kInfinity)), _mm512_set1_epi16(0x7fff),
                  best);
  }

 private:
  static __m512i turned(__m512i bits, __m512i below) {
    return _mm512_ternarylogic_epi32(bits, below, _mm512_set1_epi16(0x7fff), 0x78);
  }  // bits ^ (below & 0x7fff)
};

}  // namespace
}  // namespace trainopt::kernels
