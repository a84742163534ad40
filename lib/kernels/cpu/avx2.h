// Loads and stores eight values as float32, whatever their type in memory (AVX2, FMA, F16C: x86-64-v3).
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

struct Avx2 {
  template <class T>
  using Order = std::conditional_t<std::is_same_v<T, float>, FloatKeys, HalfKeys<T>>;
  using Number = float;
  using Numbers = __m256;
  using Positions = __m256i;
  using Mask = __m256;
  static constexpr int64_t kLanes = 8;

  static Numbers load(const float* from) { return _mm256_loadu_ps(from); }
  static Numbers load(const c10::BFloat16* from) {
    return widened<c10::BFloat16>(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static Numbers load(const c10::Half* from) {
    return widened<c10::Half>(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static Positions load(const uint8_t* from) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }

  template <class T>
  static Numbers widened(__m128i halves) {
    if constexpr (std::is_same_v<T, c10::Half>)
      return _mm256_cvtph_ps(halves);
    else
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }

  // Stores round to nearest, ties to even.
  static void store(float* to, Numbers values) { _mm256_storeu_ps(to, values); }
  static void store(c10::BFloat16* to, Numbers values) {
    const __m256i bits = _mm256_castps_si256(values),
                  odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
    const __m256i number =
        _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_ORD_Q));  // NaN must not round to infinity
    const __m256i converted = _mm256_blendv_epi8(_mm256_set1_epi32(0x7fc0), rounded, number);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                     _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(converted, converted), 0x08)));
  }
  static void store(c10::Half* to, Numbers values) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
  }
  static void store(uint8_t* to, Positions values) {
    const __m256i shorts = _mm256_permute4x64_epi64(_mm256_packus_epi32(values, values), 0x08);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to),
                     _mm_packus_epi16(_mm256_castsi256_si128(shorts), _mm256_castsi256_si128(shorts)));
  }

  /// Stores past the caches, to memory aligned to a vector of T.
  static void stream(float* to, Numbers values) { _mm256_stream_ps(to, values); }
  template <class T>
  static void stream(T* to, Numbers values) {
    alignas(16) T narrow[kLanes];
    store(static_cast<T*>(narrow), values);
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), _mm_load_si128(reinterpret_cast<const __m128i*>(narrow)));
  }
  /// Other threads see what was streamed once they see anything written after this.
  static void end_streaming() { _mm_sfence(); }

  /// The first `count` values, for the end of a row; the others load as zero and are not stored.
  template <class T>
  static auto load(const T* from, int64_t count) {
    alignas(32) T buffer[kLanes] = {};
    for (int64_t i = 0; i < count; ++i) buffer[i] = from[i];
    return load(static_cast<const T*>(buffer));
  }
  template <class T, class V>
  static void store(T* to, V values, int64_t count) {
    alignas(32) T buffer[kLanes];
    store(static_cast<T*>(buffer), values);
    for (int64_t i = 0; i < count; ++i) to[i] = buffer[i];
  }

  static Numbers zero() { return _mm256_setzero_ps(); }
  static Numbers of(float number) { return _mm256_set1_ps(number); }
  static Positions all(int position) { return _mm256_set1_epi32(position); }
  static Numbers multiply_add(Numbers a, Numbers b, Numbers c) { return _mm256_fmadd_ps(a, b, c); }
  /// Returns b where either is NaN.
  static Numbers larger(Numbers a, Numbers b) { return _mm256_max_ps(a, b); }
  static Numbers smaller(Numbers a, Numbers b) { return _mm256_min_ps(a, b); }
  static Numbers magnitude(Numbers values) { return _mm256_andnot_ps(of(-0.0f), values); }
  /// 1 / values, with a relative error below 3e-7; NaN for 0 and infinity.
  static Numbers reciprocal(Numbers values) {
    const Numbers near = _mm256_rcp_ps(values);  // to 12 bits; then one step of Newton's method
    return multiply_add(near, _mm256_fnmadd_ps(values, near, of(1)), near);
  }
  /// reciprocal(), or faster with an error below 7e-5 if the CPU can.
  static Numbers near_reciprocal(Numbers values) { return reciprocal(values); }
  static Numbers rounded(Numbers values) {
    return _mm256_round_ps(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  /// values · 2^n; both `values` and the result must be normal numbers.
  static Numbers times_two_to(Numbers values, Numbers n) {
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_castps_si256(values), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
  }
  /// values · 2^n for normal `values` and n ≤ 0; 0 for a result that is not a normal number.
  static Numbers times_two_to_or_zero(Numbers values, Numbers n) {
    return except(greater(of(-125), n), times_two_to(values, n));
  }
  /// Horizontal reductions, by halves.
  static float largest(Numbers values) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(values), _mm256_extractf128_ps(values, 1)),
                 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }
  static float total(Numbers values) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(values), _mm256_extractf128_ps(values, 1)),
                 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static Mask first(int64_t count) {
    return _mm256_castsi256_ps(
        _mm256_cmpgt_epi32(all(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)));
  }
  static Mask greater(Numbers a, Numbers b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
  static Mask nan_in(Numbers a, Numbers b) { return _mm256_cmp_ps(a, b, _CMP_UNORD_Q); }
  static Mask either(Mask a, Mask b) { return _mm256_or_ps(a, b); }
  static Numbers nan() { return _mm256_castsi256_ps(all(0x7fc00000)); }
  static Mask equal(Positions a, int b) { return _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, all(b))); }
  static Numbers where(Mask mask, Numbers values) { return _mm256_and_ps(mask, values); }
  static Numbers except(Mask mask, Numbers values) { return _mm256_andnot_ps(mask, values); }
  static Numbers choose(Mask mask, Numbers yes, Numbers no) { return _mm256_blendv_ps(no, yes, mask); }
  static Positions choose(Mask mask, Positions yes, Positions no) {
    return _mm256_blendv_epi8(no, yes, _mm256_castps_si256(mask));
  }
  /// max(values, 0), but NaN stays NaN.
  static Numbers relu(Numbers values) { return where(_mm256_cmp_ps(values, zero(), _CMP_NLE_UQ), values); }
};

/// Values in memory as sort keys. For a scale that is neither 0 nor infinite, the x with the largest scale · x + shift
/// has the largest key, and equal values of x have equal keys.
struct FloatKeys : Avx2 {
  using Keys = Numbers;

  /// The sign bits to flip, so that x increases with scale · x.
  static Keys signs(const float* scale) { return _mm256_and_ps(_mm256_loadu_ps(scale), _mm256_set1_ps(-0.0f)); }
  static Keys load(const float* from, Keys signs) { return _mm256_xor_ps(_mm256_loadu_ps(from), signs); }
  static Keys samples(Keys keys, Keys signs) { return _mm256_xor_ps(keys, signs); }
  static Keys part(Keys samples, int) { return samples; }
  using Avx2::store;
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
  using Keys = __m256i;
  using Positions = __m256i;
  using Mask = __m256i;
  static constexpr int64_t kLanes = 16;
  static constexpr int16_t kInfinity = std::is_same_v<T, c10::Half> ? 0x7c00 : 0x7f80;

  static Keys signs(const float* scale) {
    const auto negative = [](const float* from) {
      return _mm256_srai_epi32(_mm256_castps_si256(_mm256_loadu_ps(from)), 31);
    };
    return _mm256_slli_epi16(_mm256_permute4x64_epi64(_mm256_packs_epi32(negative(scale), negative(scale + 8)), 0xd8),
                             15);
  }
  static Keys load(const T* from, Keys signs) {
    const __m256i bits = _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)), signs),
                  below = _mm256_srai_epi16(bits, 15);
    return _mm256_sub_epi16(turned(bits, below), below);  // −0 becomes 0
  }
  static __m256i samples(Keys keys, Keys signs) {
    const __m256i below = _mm256_srai_epi16(keys, 15);
    return _mm256_xor_si256(turned(_mm256_add_epi16(keys, below), below), signs);
  }
  static __m256 part(__m256i samples, int half) {
    return Avx2::widened<T>(half == 0 ? _mm256_castsi256_si128(samples) : _mm256_extracti128_si256(samples, 1));
  }
  static void store(T* to, __m256i samples) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), samples); }
  /// Rounded as in Avx2::store(). A NaN must come from a 16-bit sample, so that it needs no rounding.
  static void store(T* to, const __m256 (&values)[2]) {
    if constexpr (std::is_same_v<T, c10::Half>) {
      const auto narrowed = [](__m256 part) { return _mm256_cvtps_ph(part, _MM_FROUND_TO_NEAREST_INT); };
      store(to, _mm256_set_m128i(narrowed(values[1]), narrowed(values[0])));
    } else {
      const auto rounded = [](__m256 part) {
        const __m256i bits = _mm256_castps_si256(part),
                      odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
      };
      store(to, _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded(values[0]), rounded(values[1])), 0xd8));
    }
  }
  static void store(uint8_t* to, Positions positions) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                     _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi16(positions, positions), 0x08)));
  }
  static Positions all(int position) { return _mm256_set1_epi16(static_cast<int16_t>(position)); }
  static Mask greater(Keys a, Keys b) { return _mm256_cmpgt_epi16(a, b); }
  static Keys choose(Mask mask, Keys yes, Keys no) { return _mm256_blendv_epi8(no, yes, mask); }
  static Mask joined(const __m256 (&masks)[2]) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(_mm256_castps_si256(masks[0]), _mm256_castps_si256(masks[1])),
                                    0xd8);
  }

  /// The smallest key. A NaN with a key above that of ∞ is the best anyway; any other has a key below that of −∞.
  using Nan = Keys;
  static Nan nan_of(Keys a, Keys b, Keys c) { return _mm256_min_epi16(_mm256_min_epi16(a, b), c); }
  static Keys with_nan(Keys best, Nan a, Nan b, Nan c) {
    return choose(_mm256_cmpgt_epi16(_mm256_set1_epi16(-kInfinity), nan_of(a, b, c)), _mm256_set1_epi16(0x7fff), best);
  }

 private:
  static __m256i turned(__m256i bits, __m256i below) { return _mm256_xor_si256(bits, _mm256_srli_epi16(below, 1)); }
};

}  // namespace
}  // namespace trainopt::kernels
