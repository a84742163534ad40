// The loops of LayerNormRows for vectors V; see kernels/cpu/row_loops.h.
#pragma once

#include "kernels/cpu/row_loops.h"
#include "kernels/layer_norm/cpu/rows.h"

#include <type_traits>

namespace trainopt::kernels {

/// Loops over float32 alone.
template <class V>
struct MomentLoops : RowLoops<V, float> {
  using Base = RowLoops<V, float>;
  using typename Base::Numbers;

  /// Σ value(first channel, lanes). Four sums at once, for speed and for accuracy.
  template <class Value>
  static float total_of(int64_t width, const Value& value) {
    constexpr int64_t kLanes = V::kLanes;
    Numbers a = V::zero(), b = a, c = a, d = a;
    int64_t at = 0;
    for (; at + 4 * kLanes <= width; at += 4 * kLanes) {
      a += value(at, FullVector<V>());
      b += value(at + kLanes, FullVector<V>());
      c += value(at + 2 * kLanes, FullVector<V>());
      d += value(at + 3 * kLanes, FullVector<V>());
    }
    Base::each_vector(width - at, [&](int64_t more, const auto& lanes) { a += value(at + more, lanes); });
    return V::total((a + b) + (c + d));
  }

  /// Two sweeps: the variance of values that are large compared with their spread keeps its digits.
  static RowMoments moments(const float* values, int64_t width) {
    const auto count = static_cast<float>(width);
    const float mean = total_of(width, [=](int64_t c, const auto& lanes) { return lanes.load(values + c); }) / count;
    const Numbers middle = V::of(mean);
    const float squares = total_of(width, [=](int64_t c, const auto& lanes) {
      const Numbers distance = lanes.values_or(lanes.load(values + c) - middle, V::zero());
      return distance * distance;
    });
    return {mean, squares / count};
  }
};

template <class V, class T>
struct LayerNormLoops : RowLoops<V, T> {
  using Base = RowLoops<V, T>;
  using typename Base::Numbers;

  static const float* widen(const T* from, int64_t width, float* room) {
    if constexpr (std::is_same_v<T, float>) return from;
    Base::each_vector(width, [=](int64_t c, const auto& lanes) { V::store(room + c, lanes.load(from + c)); });
    return room;
  }
  static void narrow(const float* from, int64_t width, T* to) {
    Base::each_vector(width, [=](int64_t c, const auto& lanes) { lanes.store(to + c, lanes.load(from + c)); });
  }

  static const float* add(const T* residual, const T* branch, T* sum, int64_t width, float* room) {
    Base::each_vector(width, [=](int64_t c, const auto& lanes) {
      lanes.store(sum + c, lanes.load(residual + c) + lanes.load(branch + c));
      if constexpr (!std::is_same_v<T, float>) V::store(room + c, lanes.load(sum + c));
    });
    if constexpr (std::is_same_v<T, float>) return sum;
    return room;
  }
  static void add_to_float(const float* residual, const T* branch, float* sum, int64_t width) {
    Base::each_vector(width, [=](int64_t c, const auto& lanes) {
      lanes.store(sum + c, lanes.load(residual + c) + lanes.load(branch + c));
    });
  }

  static Numbers normal(Numbers value, Numbers mean, Numbers rstd) { return (value - mean) * rstd; }

  static void normalize(const float* values, int64_t width, RowScale by, const float* weight, const float* bias,
                        T* result) {
    const Numbers mean = V::of(by.mean), rstd = V::of(by.rstd);
    Base::each_vector(width, [=](int64_t c, const auto& lanes) {
      lanes.store(result + c,
                  V::multiply_add(normal(lanes.load(values + c), mean, rstd), V::load(weight + c), V::load(bias + c)));
    });
  }

  static RowMeans means(const T* gradient, const float* values, int64_t width, RowScale by, const float* weight,
                        float* scaled, float* of_bias, float* of_weight) {
    const Numbers mean = V::of(by.mean), rstd = V::of(by.rstd);
    Numbers sum = V::zero(), product = V::zero();
    Base::each_vector(width, [&, gradient, values, weight, scaled, of_bias, of_weight](int64_t c, const auto& lanes) {
      const Numbers g = lanes.load(gradient + c), n = normal(lanes.load(values + c), mean, rstd);
      V::store(of_bias + c, V::load(of_bias + c) + g);
      V::store(of_weight + c, V::multiply_add(g, n, V::load(of_weight + c)));
      const Numbers by_weight = g * V::load(weight + c);
      V::store(scaled + c, by_weight);
      sum += by_weight;
      product = V::multiply_add(by_weight, n, product);
    });
    const auto count = static_cast<float>(width);
    return {V::total(sum) / count, V::total(product) / count};
  }

  template <bool kAdds>
  static void input_gradient_of(const float* scaled, const float* values, const T* of_sum, int64_t width, RowScale by,
                                RowMeans means, T* result) {
    const Numbers mean = V::of(by.mean), rstd = V::of(by.rstd), mean_scaled = V::of(means.scaled),
                  of_distance = V::of(-by.rstd * means.product);
    Base::each_vector(width, [=](int64_t c, const auto& lanes) {
      const Numbers centered =
          V::multiply_add(lanes.load(values + c) - mean, of_distance, V::load(scaled + c) - mean_scaled);
      if constexpr (kAdds)
        lanes.store(result + c, V::multiply_add(centered, rstd, lanes.load(of_sum + c)));
      else
        lanes.store(result + c, centered * rstd);
    });
  }
  static void input_gradient(const float* scaled, const float* values, const T* of_sum, int64_t width, RowScale by,
                             RowMeans means, T* result) {
    const auto run = of_sum ? &input_gradient_of<true> : &input_gradient_of<false>;
    run(scaled, values, of_sum, width, by, means, result);
  }
};

template <class V, class T>
constexpr LayerNormRows<T> layer_norm_rows() {
  using Loops = LayerNormLoops<V, T>;
  return {&Loops::widen,     &Loops::narrow, &Loops::add,           &Loops::add_to_float, &MomentLoops<V>::moments,
          &Loops::normalize, &Loops::means,  &Loops::input_gradient};
}

}  // namespace trainopt::kernels
