// RowKernels' loops for vectors V: Avx2 or Avx512. V has no name outside its file, so nothing that is made of it here
// has one either.
#pragma once

#include "optimizations/fused_kernels/cpu/row_kernels.h"

#include <utility>

namespace trainopt::fused_kernels {

/// How many of a vector's numbers there are: all, or the rest of a row.
template <class V>
struct Whole {
  template <class T>
  auto take(const T* from) const {
    return V::load(from);
  }
  template <class T, class Values>
  void put(T* to, Values values) const {
    V::store(to, values);
  }
  auto only(typename V::Numbers values, typename V::Numbers /*otherwise*/) const { return values; }
};
template <class V>
struct Part {
  int64_t count;
  template <class T>
  auto take(const T* from) const {
    return V::load(from, count);
  }
  template <class T, class Values>
  void put(T* to, Values values) const {
    V::store(to, values, count);
  }
  auto only(typename V::Numbers values, typename V::Numbers otherwise) const {
    return V::choose(V::first(count), values, otherwise);
  }
};

template <class V, class T>
struct RowLoops {
  using Numbers = typename V::Numbers;

  /// Calls work(first channel, Whole or Part) for all of a row's channels.
  template <class F>
  static void each_vector(int64_t channels, const F& work) {
    int64_t c = 0;
    for (; c + V::kLanes <= channels; c += V::kLanes) work(c, Whole<V>());
    if (c < channels) work(c, Part<V>{channels - c});
  }

  static constexpr int64_t kRowsAtOnce = 16;  // few enough that memory is read in its order

  /// Adds `rows` rows from `first`: body(row, first channel, lanes, sum, other) adds a vector to both. Written out for
  /// as many as have their sums in registers.
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
        sum_tile(first, count, c, Whole<V>(), body, sums, others, kFour);
      for (; c + V::kLanes <= channels; c += V::kLanes) sum_tile(first, count, c, Whole<V>(), body, sums, others, kOne);
      if (c < channels) sum_tile(first, count, c, Part<V>{channels - c}, body, sums, others, kOne);
    }
  }

  static void moments(const T* x, int64_t rows, int64_t channels, const float* pivot, float* sums, float* squares) {
    sum_rows(rows, channels, sums, squares,
             [=](int64_t row, int64_t c, const auto& lanes, Numbers& sum, Numbers& square) {
               const Numbers distance = lanes.take(x + row * channels + c) - V::load(pivot + c);
               sum += distance;
               square = V::multiply_add(distance, distance, square);
             });
  }

  template <bool kAdds, bool kRelu>
  static void apply_as(const T* x, const T* residual, T* y, int64_t rows, int64_t channels, const float* scale,
                       const float* shift) {
    for (int64_t row = 0; row < rows; ++row)
      each_vector(channels, [=](int64_t c, const auto& lanes) {
        const int64_t at = row * channels + c;
        Numbers z = V::multiply_add(lanes.take(x + at), V::load(scale + c), V::load(shift + c));
        if constexpr (kAdds) z += lanes.take(residual + at);
        lanes.put(y + at, kRelu ? V::relu(z) : z);
      });
  }
  static void apply(const T* x, const T* residual, T* y, int64_t rows, int64_t channels, const float* scale,
                    const float* shift, bool relu) {
    const auto run = residual ? (relu ? &apply_as<true, true> : &apply_as<true, false>)
                              : (relu ? &apply_as<false, true> : &apply_as<false, false>);
    run(x, residual, y, rows, channels, scale, shift);
  }

  template <Gate kGate>
  static void sums_of(const T* gradient, const T* x, const T* output, T* passed, int64_t rows, int64_t channels,
                      const float* mean, const float* scale, const float* shift, float* sums, float* products) {
    sum_rows(rows, channels, sums, products,
             [=](int64_t row, int64_t c, const auto& lanes, Numbers& sum, Numbers& product) {
               const int64_t at = row * channels + c;
               const Numbers value = lanes.take(x + at);
               Numbers g = lanes.take(gradient + at);
               if constexpr (kGate == Gate::relu)
                 g = V::where(V::greater(V::multiply_add(value, V::load(scale + c), V::load(shift + c)), V::zero()), g);
               if constexpr (kGate == Gate::output) {
                 g = V::where(V::greater(lanes.take(output + at), V::zero()), g);
                 lanes.put(passed + at, g);
               }
               sum += g;
               product = V::multiply_add(g, value - V::load(mean + c), product);
             });
  }
  static void sums(Gate gate, const T* gradient, const T* x, const T* output, T* passed, int64_t rows, int64_t channels,
                   const float* mean, const float* scale, const float* shift, float* sums, float* products) {
    const auto run = gate == Gate::open   ? &sums_of<Gate::open>
                     : gate == Gate::relu ? &sums_of<Gate::relu>
                                          : &sums_of<Gate::output>;
    run(gradient, x, output, passed, rows, channels, mean, scale, shift, sums, products);
  }

  static Numbers combined(const Combination& by, Numbers g, Numbers x, int64_t c) {
    return V::multiply_add(g, V::load(by.of_gradient + c),
                           V::multiply_add(x, V::load(by.of_x + c), V::load(by.rest + c)));
  }

  template <Gate kGate>
  static void input_gradient_of(const T* gradient, const T* x, T* result, int64_t rows, int64_t channels,
                                const Combination& by, const float* scale, const float* shift) {
    for (int64_t row = 0; row < rows; ++row)
      each_vector(channels, [=, &by](int64_t c, const auto& lanes) {
        const int64_t at = row * channels + c;
        const Numbers value = lanes.take(x + at);
        Numbers g = lanes.take(gradient + at);
        if constexpr (kGate == Gate::relu)
          g = V::where(V::greater(V::multiply_add(value, V::load(scale + c), V::load(shift + c)), V::zero()), g);
        lanes.put(result + at, combined(by, g, value, c));
      });
  }
  static void input_gradient(Gate gate, const T* gradient, const T* x, T* result, int64_t rows, int64_t channels,
                             const Combination& by, const float* scale, const float* shift) {
    const auto run = gate == Gate::relu ? &input_gradient_of<Gate::relu> : &input_gradient_of<Gate::open>;
    run(gradient, x, result, rows, channels, by, scale, shift);
  }
};

}  // namespace trainopt::fused_kernels
