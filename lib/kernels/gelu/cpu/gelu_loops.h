// The loops of GeluRows for vectors V; see kernels/cpu/row_loops.h.
#pragma once

#include "kernels/cpu/exponential.h"
#include "kernels/cpu/row_loops.h"
#include "kernels/gelu/constants.h"
#include "kernels/gelu/cpu/rows.h"

namespace trainopt::kernels {

/// gelu(z) = z · value, gelu'(z) = value + z · slope. For z of −∞, value is exactly 0, so that gelu is NaN as in torch.
template <class V>
struct GeluShare {
  typename V::Numbers value, slope;
};

/// Whether polynomials may be short, since results are rounded to 16 bits.
template <class T>
inline constexpr bool kShort = sizeof(T) == 2;

template <class V, class T>
typename V::Numbers reciprocal_for(typename V::Numbers values) {
  return kShort<T> ? V::near_reciprocal(values) : V::reciprocal(values);
}

template <class V, class T>
struct ExactGelu {
  using Numbers = typename V::Numbers;

  /// e^(a²/2) · Φ(−a)
  static Numbers tail(Numbers a) {
    const Numbers t =
        reciprocal_for<V, T>(V::multiply_add(a, V::of(kShort<T> ? gelu::kShortScale : gelu::kScale), V::of(1)));
    Numbers sum;
    if constexpr (kShort<T>) {
      sum = V::multiply_add(t, V::of(gelu::kShortTail4), V::of(gelu::kShortTail3));
      sum = V::multiply_add(t, sum, V::of(gelu::kShortTail2));
      sum = V::multiply_add(t, sum, V::of(gelu::kShortTail1));
      sum = V::multiply_add(t, sum, V::of(gelu::kShortTail0));
    } else {
      sum = V::multiply_add(t, V::of(gelu::kTail6), V::of(gelu::kTail5));
      sum = V::multiply_add(t, sum, V::of(gelu::kTail4));
      sum = V::multiply_add(t, sum, V::of(gelu::kTail3));
      sum = V::multiply_add(t, sum, V::of(gelu::kTail2));
      sum = V::multiply_add(t, sum, V::of(gelu::kTail1));
      sum = V::multiply_add(t, sum, V::of(gelu::kTail0));
    }
    return t * sum;
  }

  static GeluShare<V> share(Numbers z) {
    const Numbers a = V::smaller(V::magnitude(z), V::of(gelu::kLargest)),
                  e = power_of_two<V, kShort<T>>(a * (a * V::of(-0.5f * gelu::kLog2OfE))), below = e * tail(a);
    return {V::choose(V::greater(z, V::zero()), V::of(1) - below, below), e * V::of(gelu::kDensity)};
  }
};

template <class V, class T>
struct TanhGelu {
  static GeluShare<V> share(typename V::Numbers z) {
    using Numbers = typename V::Numbers;
    // (1 + tanh(u)) / 2 = 1 / (1 + e^(−2 u))
    const Numbers square = z * z,
                  power = z * V::multiply_add(square, V::of(gelu::kCubic * gelu::kLog2OfE),
                                              V::of(gelu::kLinear * gelu::kLog2OfE)),
                  e = power_of_two<V, kShort<T>>(V::zero() -
                                                 V::smaller(V::magnitude(power), V::of(gelu::kLargestPower))),
                  above = reciprocal_for<V, T>(V::of(1) + e), below = e * above;
    return {V::choose(V::greater(z, V::zero()), above, below),
            below * above * V::multiply_add(square, V::of(3 * gelu::kCubic), V::of(gelu::kLinear))};
  }
};

template <class V, class T>
struct GeluLoops : RowLoops<V, T> {
  using Base = RowLoops<V, T>;
  using typename Base::Numbers;

  template <class Form>
  static void forward_of(const T* x, const float* bias, T* y, int64_t rows, int64_t width) {
    for (int64_t row = 0; row < rows; ++row)
      Base::each_vector(width, [=](int64_t c, const auto& lanes) {
        const int64_t at = row * width + c;
        const Numbers z = lanes.load(x + at) + V::load(bias + c);
        lanes.store(y + at, z * Form::share(z).value);
      });
  }
  static void forward(bool tanh, const T* x, const float* bias, T* y, int64_t rows, int64_t width) {
    const auto run = tanh ? &forward_of<TanhGelu<V, T>> : &forward_of<ExactGelu<V, T>>;
    run(x, bias, y, rows, width);
  }

  template <class Form>
  static void backward_of(const T* gradient, const T* x, const float* bias, T* of_x, int64_t rows, int64_t width,
                          float* of_bias) {
    for (int64_t row = 0; row < rows; ++row)
      Base::each_vector(width, [=](int64_t c, const auto& lanes) {
        const int64_t at = row * width + c;
        const Numbers z = lanes.load(x + at) + V::load(bias + c);
        const auto share = Form::share(z);
        const Numbers g = lanes.load(gradient + at) * V::multiply_add(z, share.slope, share.value);
        lanes.store(of_x + at, g);
        V::store(of_bias + c, V::load(of_bias + c) + g);
      });
  }
  static void backward(bool tanh, const T* gradient, const T* x, const float* bias, T* of_x, int64_t rows,
                       int64_t width, float* of_bias) {
    const auto run = tanh ? &backward_of<TanhGelu<V, T>> : &backward_of<ExactGelu<V, T>>;
    run(gradient, x, bias, of_x, rows, width, of_bias);
  }
};

template <class V, class T>
constexpr GeluRows<T> gelu_rows() {
  using Loops = GeluLoops<V, T>;
  return {&Loops::forward, &Loops::backward};
}

}  // namespace trainopt::kernels
