// Loops over rows of channels for vectors V: Avx2 (required by the program) or Avx512 (selected at run time). V has
// internal linkage, so everything instantiated from it here does too: code compiled for wide vectors must never be used
// by the rest of the program.
#pragma once

#include <cstdint>
#include <utility>

namespace trainopt::kernels {

/// Arrays of per-channel values (float32) have room for this many more values past the end.
inline constexpr int64_t kMaxLanes = 16;

/// Access to a whole vector, or to the remainder of a row.
template <class V>
struct FullVector {
  template <class T>
  auto load(const T* from) const {
    return V::load(from);
  }
  template <class T, class Values>
  void store(T* to, Values values) const {
    V::store(to, values);
  }
  auto values_or(typename V::Numbers values, typename V::Numbers /*otherwise*/) const { return values; }
};
/// A whole vector in an array aligned to it. Stores go past the caches, so that memory is not read before it is
/// written; V::end_streaming() must follow.
template <class V>
struct StreamedVector : FullVector<V> {
  template <class T, class Values>
  void store(T* to, Values values) const {
    V::stream(to, values);
  }
};
template <class V>
struct PartialVector {
  int64_t count;
  template <class T>
  auto load(const T* from) const {
    return V::load(from, count);
  }
  template <class T, class Values>
  void store(T* to, Values values) const {
    V::store(to, values, count);
  }
  auto values_or(typename V::Numbers values, typename V::Numbers otherwise) const {
    return V::choose(V::first(count), values, otherwise);
  }
};

template <class V, class T>
struct RowLoops {
  using Numbers = typename V::Numbers;

  /// Calls work(first channel, Whole or PartialVector) for all channels of a row.
  template <class Whole = FullVector<V>, class F>
  static void each_vector(int64_t channels, const F& work) {
    int64_t c = 0;
    for (; c + V::kLanes <= channels; c += V::kLanes) work(c, Whole());
    if (c < channels) work(c, PartialVector<V>{channels - c});
  }

  static constexpr int64_t kRowsAtOnce = 16;  // few enough that memory is read sequentially

  /// Sums `rows` rows from `first` on: body(row, first channel, lanes, sum, other) adds a vector to both sums. Unrolled
  /// for as many vectors as can keep their sums in registers.
  template <class Lanes, class Body, int64_t... kVectors>
  static void sum_tile(int64_t first, int64_t rows, int64_t c, const Lanes& lanes, const Body& body, float* sums,
                       float* others, std::integer_sequence<int64_t, kVectors...>) {
    Numbers sum[] = {V::load(sums + c + kVectors * V::kLanes)...},
            other[] = {V::load(others + c + kVectors * V::kLanes)...};
    for (int64_t row = first; row < first + rows; ++row)
      (body(row, c + kVectors * V::kLanes, lanes, sum[kVectors], other[kVectors]), ...);
    (V::store(sums + c + kVectors * V::kLanes, sum[kVectors]), ...);
    (V::store(others + c + kVectors * V::kLanes, other[kVectors]), ...);
  }

  template <class Body>
  static void sum_rows(int64_t rows, int64_t channels, float* sums, float* others, const Body& body) {
    constexpr std::make_integer_sequence<int64_t, 4> kFour;
    constexpr std::make_integer_sequence<int64_t, 1> kOne;
    for (int64_t first = 0; first < rows; first += kRowsAtOnce) {
      const int64_t count = rows - first < kRowsAtOnce ? rows - first : kRowsAtOnce;
      int64_t c = 0;
      for (; c + 4 * V::kLanes <= channels; c += 4 * V::kLanes)
        sum_tile(first, count, c, FullVector<V>(), body, sums, others, kFour);
      for (; c + V::kLanes <= channels; c += V::kLanes)
        sum_tile(first, count, c, FullVector<V>(), body, sums, others, kOne);
      if (c < channels) sum_tile(first, count, c, PartialVector<V>{channels - c}, body, sums, others, kOne);
    }
  }
};

}  // namespace trainopt::kernels
