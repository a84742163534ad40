// The loops of NormRows for vectors V; see kernels/cpu/row_loops.h.
#pragma once

#include "kernels/cpu/row_loops.h"
#include "kernels/norm/cpu/rows.h"

namespace trainopt::kernels {

template <class V, class T>
struct NormLoops : RowLoops<V, T> {
  using Base = RowLoops<V, T>;
  using typename Base::Numbers;

  static void moments(const T* x, int64_t rows, int64_t channels, const float* pivot, float* sums, float* squares) {
    Base::sum_rows(rows, channels, sums, squares,
                   [=](int64_t row, int64_t c, const auto& lanes, Numbers& sum, Numbers& square) {
                     const Numbers distance = lanes.load(x + row * channels + c) - V::load(pivot + c);
                     sum += distance;
                     square = V::multiply_add(distance, distance, square);
                   });
  }

  template <bool kAdds, bool kRelu, class Whole>
  static void apply_as(const T* x, const T* residual, T* y, int64_t rows, int64_t channels, const float* scale,
                       const float* shift) {
    for (int64_t row = 0; row < rows; ++row)
      Base::template each_vector<Whole>(channels, [=](int64_t c, const auto& lanes) {
        const int64_t at = row * channels + c;
        Numbers z = V::multiply_add(lanes.load(x + at), V::load(scale + c), V::load(shift + c));
        if constexpr (kAdds) z += lanes.load(residual + at);
        lanes.store(y + at, kRelu ? V::relu(z) : z);
      });
  }
  template <class Whole>
  static auto apply_in(bool adds, bool relu) {
    return adds ? (relu ? &apply_as<true, true, Whole> : &apply_as<true, false, Whole>)
                : (relu ? &apply_as<false, true, Whole> : &apply_as<false, false, Whole>);
  }
  static void apply(const T* x, const T* residual, T* y, int64_t rows, int64_t channels, const float* scale,
                    const float* shift, bool relu, bool streams) {
    const bool adds = residual != nullptr;
    const auto run = streams ? apply_in<StreamedVector<V>>(adds, relu) : apply_in<FullVector<V>>(adds, relu);
    run(x, residual, y, rows, channels, scale, shift);
    if (streams) V::end_streaming();
  }

  template <Gate kGate>
  static void sums_of(const T* gradient, const T* x, const T* output, T* passed, int64_t rows, int64_t channels,
                      const float* mean, const float* scale, const float* shift, float* sums, float* products) {
    Base::sum_rows(
        rows, channels, sums, products, [=](int64_t row, int64_t c, const auto& lanes, Numbers& sum, Numbers& product) {
          const int64_t at = row * channels + c;
          const Numbers value = lanes.load(x + at);
          Numbers g = lanes.load(gradient + at);
          if constexpr (kGate == Gate::relu)
            g = V::where(V::greater(V::multiply_add(value, V::load(scale + c), V::load(shift + c)), V::zero()), g);
          if constexpr (kGate == Gate::output) {
            g = V::where(V::greater(lanes.load(output + at), V::zero()), g);
            lanes.store(passed + at, g);
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

  template <Gate kGate, class Whole>
  static void input_gradient_of(const T* gradient, const T* x, T* result, int64_t rows, int64_t channels,
                                const Combination& by, const float* scale, const float* shift) {
    for (int64_t row = 0; row < rows; ++row)
      Base::template each_vector<Whole>(channels, [=, &by](int64_t c, const auto& lanes) {
        const int64_t at = row * channels + c;
        const Numbers value = lanes.load(x + at);
        Numbers g = lanes.load(gradient + at);
        if constexpr (kGate == Gate::relu)
          g = V::where(V::greater(V::multiply_add(value, V::load(scale + c), V::load(shift + c)), V::zero()), g);
        lanes.store(result + at, combined(by, g, value, c));
      });
  }
  template <class Whole>
  static auto input_gradient_in(Gate gate) {
    return gate == Gate::relu ? &input_gradient_of<Gate::relu, Whole> : &input_gradient_of<Gate::open, Whole>;
  }
  static void input_gradient(Gate gate, const T* gradient, const T* x, T* result, int64_t rows, int64_t channels,
                             const Combination& by, const float* scale, const float* shift, bool streams) {
    const auto run = streams ? input_gradient_in<StreamedVector<V>>(gate) : input_gradient_in<FullVector<V>>(gate);
    run(gradient, x, result, rows, channels, by, scale, shift);
    if (streams) V::end_streaming();
  }
};

template <class V, class T>
constexpr NormRows<T> norm_rows() {
  using Loops = NormLoops<V, T>;
  return {&Loops::moments, &Loops::apply, &Loops::sums, &Loops::input_gradient};
}

}  // namespace trainopt::kernels
