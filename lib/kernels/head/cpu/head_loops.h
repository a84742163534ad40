// The loops of HeadRows for vectors V; see kernels/cpu/row_loops.h.
#pragma once

#include "kernels/cpu/exponential.h"
#include "kernels/cpu/row_loops.h"
#include "kernels/head/cpu/rows.h"

#include <cfloat>

namespace trainopt::kernels {

template <class V, class T>
struct HeadLoops : RowLoops<V, T> {
  using Base = RowLoops<V, T>;
  using typename Base::Numbers;

  // ---- the mean over pixels ----

  /// Adds the sums of `rows` rows. Unrolled for as many vectors as can keep their sums in registers.
  template <class Lanes, int64_t... kVectors>
  static void add_rows(const T* x, int64_t rows, int64_t channels, const Lanes& lanes, float* sums,
                       std::integer_sequence<int64_t, kVectors...>) {
    Numbers sum[] = {(static_cast<void>(kVectors), V::zero())...};
    for (int64_t row = 0; row < rows; ++row) {
      const T* from = x + row * channels;
      // The hardware prefetcher does not predict accesses to pieces of rows.
      (__builtin_prefetch(from + Base::kRowsAtOnce * channels + kVectors * V::kLanes), ...);
      ((sum[kVectors] += lanes.load(from + kVectors * V::kLanes)), ...);
    }
    (V::store(sums + kVectors * V::kLanes, V::load(sums + kVectors * V::kLanes) + sum[kVectors]), ...);
  }

  static void mean(const T* x, T* result, int64_t pixels, int64_t channels, float* sums) {
    constexpr std::make_integer_sequence<int64_t, 8> kEight;
    constexpr std::make_integer_sequence<int64_t, 1> kOne;
    for (int64_t c = 0; c < channels; c += V::kLanes) V::store(sums + c, V::zero());
    for (int64_t first = 0; first < pixels; first += Base::kRowsAtOnce) {
      const int64_t rows = pixels - first < Base::kRowsAtOnce ? pixels - first : Base::kRowsAtOnce;
      const T* from = x + first * channels;
      int64_t c = 0;
      for (; c + 8 * V::kLanes <= channels; c += 8 * V::kLanes)
        add_rows(from + c, rows, channels, FullVector<V>(), sums + c, kEight);
      for (; c + V::kLanes <= channels; c += V::kLanes)
        add_rows(from + c, rows, channels, FullVector<V>(), sums + c, kOne);
      if (c < channels) add_rows(from + c, rows, channels, PartialVector<V>{channels - c}, sums + c, kOne);
    }
    const Numbers count = V::of(static_cast<float>(pixels));
    Base::each_vector(channels,
                      [=](int64_t c, const auto& lanes) { lanes.store(result + c, V::load(sums + c) / count); });
  }

  static void mean_gradient(const T* gradient, T* result, int64_t pixels, int64_t channels) {
    const Numbers count = V::of(static_cast<float>(pixels));
    Base::each_vector(channels,
                      [=](int64_t c, const auto& lanes) { lanes.store(result + c, lanes.load(gradient + c) / count); });
    for (int64_t pixel = 1; pixel < pixels; ++pixel)
      __builtin_memcpy(result + pixel * channels, result, static_cast<size_t>(channels) * sizeof(T));
  }

  // ---- a row of logits ----

  template <bool kGapSum>
  static RowSums exponentials_of(const T* logits, int64_t classes, float* exponentials) {
    // Starts from the lowest number, not −∞, because −∞ − −∞ would be NaN. A NaN that is lost here still reaches the
    // sum.
    const Numbers lowest = V::of(-FLT_MAX);
    Numbers maximum = lowest;
    Base::each_vector(classes, [&, logits](int64_t c, const auto& lanes) {
      maximum = V::larger(lanes.values_or(lanes.load(logits + c), lowest), maximum);
    });
    const float largest = V::largest(maximum);
    const Numbers top = V::of(largest);
    Numbers sum = V::zero(), gap_sum = V::zero();
    Base::each_vector(classes, [&, logits, exponentials](int64_t c, const auto& lanes) {
      const Numbers below = lanes.load(logits + c) - top, e = exponential<V>(below);
      V::store(exponentials + c, e);
      sum += lanes.values_or(e, V::zero());
      if constexpr (kGapSum) gap_sum -= lanes.values_or(below, V::zero());
    });
    return {largest, V::total(sum), V::total(gap_sum)};
  }
  static RowSums exponentials(const T* logits, int64_t classes, bool with_gap_sum, float* exponentials) {
    return with_gap_sum ? exponentials_of<true>(logits, classes, exponentials)
                        : exponentials_of<false>(logits, classes, exponentials);
  }

  static void scale_shift(const float* exponentials, int64_t classes, float factor, float offset, T* result) {
    const Numbers a = V::of(factor), b = V::of(offset);
    Base::each_vector(classes, [=](int64_t c, const auto& lanes) {
      lanes.store(result + c, V::multiply_add(V::load(exponentials + c), a, b));
    });
  }

  static void scale(T* values, int64_t count, float factor) {
    const Numbers a = V::of(factor);
    Base::each_vector(count,
                      [=](int64_t i, const auto& lanes) { lanes.store(values + i, lanes.load(values + i) * a); });
  }
};

template <class V, class T>
constexpr HeadRows<T> head_rows() {
  using Loops = HeadLoops<V, T>;
  return {&Loops::mean, &Loops::mean_gradient, &Loops::exponentials, &Loops::scale_shift, &Loops::scale};
}

}  // namespace trainopt::kernels
