#include "data/image/resample_rows.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

namespace trainopt {

namespace {

constexpr int32_t kHalf = 1 << (kResampleBits - 1);

inline __m128i load_16(const uint8_t* bytes) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)); }

/// Two input pixels (bytes kFrom to kFrom + 5 of both halves of `pixels`; kFrom is 0 or 6) times their coefficients:
/// int32 (R, G, B, 0) in each half.
template <int kFrom>
inline __m256i weigh_two(__m256i pixels, const int32_t* coefficients) {
  constexpr char k = kFrom, _ = -1;
  const __m256i spread = _mm256_setr_epi8(k + 0, _, _, _, k + 1, _, _, _, k + 2, _, _, _, _, _, _, _,  //
                                          k + 3, _, _, _, k + 4, _, _, _, k + 5, _, _, _, _, _, _, _);
  const __m256i weights = _mm256_permutevar8x32_epi32(
      _mm256_castsi128_si256(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(coefficients))),
      _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
  return _mm256_mullo_epi32(_mm256_shuffle_epi8(pixels, spread), weights);
}

/// One output pixel as int32 (R, G, B, 0), from the input pixels at `pixel`. kTaps > 0: the table's number of taps as a
/// compile-time constant.
template <int kTaps>
inline __m128i weigh_pixel(const uint8_t* pixel, const int32_t* coefficient, int64_t table_taps) {
  const int64_t taps = kTaps > 0 ? kTaps : table_taps;
  __m256i sum = _mm256_setr_epi32(kHalf, kHalf, kHalf, kHalf, 0, 0, 0, 0);
  int64_t tap = 0;
  for (; tap + 4 <= taps; tap += 4) {  // 16 bytes hold four pixels
    const __m256i pixels = _mm256_broadcastsi128_si256(load_16(pixel + tap * 3));
    sum = _mm256_add_epi32(
        sum, _mm256_add_epi32(weigh_two<0>(pixels, coefficient + tap), weigh_two<6>(pixels, coefficient + tap + 2)));
  }
  if (tap < taps)
    sum = _mm256_add_epi32(sum, weigh_two<0>(_mm256_broadcastsi128_si256(load_16(pixel + tap * 3)), coefficient + tap));
  return _mm_srai_epi32(_mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1)), kResampleBits);
}

/// Calls four(out x, 16 bytes R G B 0 of four pixels) and one(out x, the same for one pixel) to serve the request.
template <int kTaps, class Four, class One>
inline void for_each_pixel(const ResampleTable& table, const RowRequest& request, const Four& four, const One& one) {
  // Local copies, because the compiler must assume that byte stores alias anything.
  const int64_t taps = table.taps, count = request.count, step = request.step;
  const uint8_t* const row = request.row;
  const int64_t row_begin = request.row_begin * 3;
  const int32_t* first = table.first.data() + request.index;
  const int32_t* coefficient = table.coefficients.data() + request.index * taps;
  const auto next = [&] {
    const __m128i pixel = weigh_pixel<kTaps>(row + (int64_t{*first} * 3 - row_begin), coefficient, taps);
    first += step;
    coefficient += step * taps;
    return pixel;
  };
  int64_t x = 0;
  for (; x + 4 <= count; x += 4) {
    const __m128i a = next(), b = next(), c = next(), d = next();
    four(x, _mm_packus_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d)));
  }
  for (; x < count; ++x) {
    const __m128i a = next();
    one(x, static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_packus_epi16(_mm_packs_epi32(a, a), a))));
  }
}

template <class Four, class One>
void for_each_pixel_of(const ResampleTable& table, const RowRequest& request, const Four& four, const One& one) {
  switch (table.taps) {
    case 2:
      return for_each_pixel<2>(table, request, four, one);
    case 4:
      return for_each_pixel<4>(table, request, four, one);
    case 6:
      return for_each_pixel<6>(table, request, four, one);
    default:
      return for_each_pixel<0>(table, request, four, one);
  }
}

inline void store_4(uint8_t* out, int32_t bytes) { std::memcpy(out, &bytes, 4); }

/// Constants that convert one vector of sums to floats; interleaved rows cycle through three of them.
struct Channels {
  __m256 mean, std;
};

inline __m256i load_eight(const uint8_t* bytes) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
}

/// Rounded sums of kVectors × 8 bytes from `at` on. kTaps > 0: the number of rows as a compile-time constant.
template <int kTaps, int kVectors>
inline void sum_bytes(const RowSum& sum, int64_t at, __m256i (&totals)[kVectors]) {
  const int64_t taps = kTaps > 0 ? kTaps : sum.taps;
#pragma GCC unroll 3
  for (int i = 0; i < kVectors; ++i) totals[i] = _mm256_set1_epi32(kHalf);
#pragma GCC unroll 2
  for (int64_t tap = 0; tap < taps; ++tap) {
    const __m256i weight = _mm256_set1_epi32(sum.coefficients[tap]);
    const uint8_t* const bytes = sum.rows[tap] + sum.offset + at;
#pragma GCC unroll 3
    for (int i = 0; i < kVectors; ++i)
      totals[i] = _mm256_add_epi32(totals[i], _mm256_mullo_epi32(load_eight(bytes + i * 8), weight));
  }
#pragma GCC unroll 3
  for (int i = 0; i < kVectors; ++i) totals[i] = _mm256_srai_epi32(totals[i], kResampleBits);
}

/// (value / 255 - mean) / std, each operation rounded to float32. The division by 255 is a multiplication and a
/// correction step (Markstein), which is exact for all 256 possible values; a test checks them all.
inline __m256 normalize_eight(__m256i values, const Channels& channels) {
  const __m256 reciprocal = _mm256_set1_ps(1.0f / 255.0f);
  const __m256 value = _mm256_cvtepi32_ps(values);
  const __m256 quotient = _mm256_mul_ps(value, reciprocal);
  const __m256 rest = _mm256_fnmadd_ps(quotient, _mm256_set1_ps(255.0f), value);
  return _mm256_div_ps(_mm256_sub_ps(_mm256_fmadd_ps(rest, reciprocal, quotient), channels.mean), channels.std);
}

template <int kTaps>
void sum_rows_f32(const RowSum& sum, const Channels (&channels)[3], float* out) {
  int64_t at = 0;
  for (; at + 24 <= sum.length; at += 24) {
    __m256i totals[3];
    sum_bytes<kTaps>(sum, at, totals);
#pragma GCC unroll 3
    for (int part = 0; part < 3; ++part)
      _mm256_storeu_ps(out + at + part * 8, normalize_eight(totals[part], channels[part]));
  }
  for (int part = 0; at < sum.length; ++part, at += 8) {
    __m256i totals[1];
    sum_bytes<kTaps>(sum, at, totals);
    alignas(32) float last[8];
    _mm256_store_ps(last, normalize_eight(totals[0], channels[part]));
    std::memcpy(out + at, last, sizeof(float) * static_cast<size_t>(std::min<int64_t>(8, sum.length - at)));
  }
}

void sum_rows_f32(const RowSum& sum, const Channels (&channels)[3], float* out) {
  switch (sum.taps) {
    case 1:
      return sum_rows_f32<1>(sum, channels, out);
    case 2:
      return sum_rows_f32<2>(sum, channels, out);
    default:
      return sum_rows_f32<0>(sum, channels, out);
  }
}

}  // namespace

void resize_row_interleaved(const ResampleTable& table, const RowRequest& request, uint8_t* out) {
  const __m128i together = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  for_each_pixel_of(
      table, request,
      [&](int64_t x, __m128i pixels) {
        const __m128i bytes = _mm_shuffle_epi8(pixels, together);
        _mm_storel_epi64(reinterpret_cast<__m128i*>(out + x * 3), bytes);
        store_4(out + x * 3 + 8, _mm_extract_epi32(bytes, 2));
      },
      [&](int64_t x, uint32_t pixel) { std::memcpy(out + x * 3, &pixel, 3); });
}

void resize_row_planar(const ResampleTable& table, const RowRequest& request, uint8_t* out, int64_t plane) {
  const __m128i planar_order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, -1, -1, -1, -1);
  for_each_pixel_of(
      table, request,
      [&](int64_t x, __m128i pixels) {
        const __m128i bytes = _mm_shuffle_epi8(pixels, planar_order);
        store_4(out + x, _mm_cvtsi128_si32(bytes));
        store_4(out + x + plane, _mm_extract_epi32(bytes, 1));
        store_4(out + x + plane * 2, _mm_extract_epi32(bytes, 2));
      },
      [&](int64_t x, uint32_t pixel) {
        for (int channel = 0; channel < 3; ++channel)
          out[x + plane * channel] = static_cast<uint8_t>(pixel >> (8 * channel));
      });
}

void sum_rows_u8(const RowSum& sum, uint8_t* out) {
  for (int64_t at = 0; at < sum.length; at += 16) {
    __m256i totals[2];
    sum_bytes<0>(sum, at, totals);
    const __m256i shorts = _mm256_permute4x64_epi64(_mm256_packs_epi32(totals[0], totals[1]), 0b11'01'10'00);
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(shorts), _mm256_extracti128_si256(shorts, 1));
    if (at + 16 <= sum.length) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + at), bytes);
    } else {
      std::memcpy(out + at, &bytes, static_cast<size_t>(sum.length - at));
    }
  }
}

void sum_rows_f32_interleaved(const RowSum& sum, const Normalization& normalization, float* out) {
  Channels channels[3];
  for (int part = 0; part < 3; ++part) {
    alignas(32) float mean[8], std[8];
    for (int lane = 0; lane < 8; ++lane) {
      mean[lane] = normalization.mean[(part * 8 + lane) % 3];
      std[lane] = normalization.std[(part * 8 + lane) % 3];
    }
    channels[part] = {_mm256_load_ps(mean), _mm256_load_ps(std)};
  }
  sum_rows_f32(sum, channels, out);
}

void sum_rows_f32_plane(const RowSum& sum, const Normalization& normalization, int channel, float* out) {
  const Channels one{_mm256_set1_ps(normalization.mean[channel]), _mm256_set1_ps(normalization.std[channel])};
  const Channels channels[3] = {one, one, one};
  sum_rows_f32(sum, channels, out);
}

}  // namespace trainopt
