// The kernels behind GeluLaunches: bodies for map() and reduce(), and their launches. Include on_device.cuh or its host
// counterpart first.
#pragma once

#include "kernels/gelu/constants.h"
#include "kernels/gelu/launch.h"
#include "kernels/rows.cuh"

#include <cmath>

namespace trainopt::kernels::device {
namespace {

/// gelu(z) = z · value, gelu'(z) = value + z · slope.
struct GeluShare {
  float value, slope;
};

/// See cpu/gelu_loops.h; of the exponentials this has the fast one for every type.
struct Exact {
  /// e^(a²/2) · Φ(−a)
  template <class T>
  __device__ static float tail(float a) {
    float t, sum;
    if constexpr (sizeof(T) == 2) {
      t = fast_reciprocal(fmaf(a, gelu::kShortScale, 1));
      sum = fmaf(t, gelu::kShortTail4, gelu::kShortTail3);
      sum = fmaf(t, sum, gelu::kShortTail2);
      sum = fmaf(t, sum, gelu::kShortTail1);
      sum = fmaf(t, sum, gelu::kShortTail0);
    } else {
      t = fast_reciprocal(fmaf(a, gelu::kScale, 1));
      sum = fmaf(t, gelu::kTail6, gelu::kTail5);
      sum = fmaf(t, sum, gelu::kTail4);
      sum = fmaf(t, sum, gelu::kTail3);
      sum = fmaf(t, sum, gelu::kTail2);
      sum = fmaf(t, sum, gelu::kTail1);
      sum = fmaf(t, sum, gelu::kTail0);
    }
    return t * sum;
  }

  template <class T>
  __device__ static GeluShare share(float z) {
    const float a = fminf(fabsf(z), gelu::kLargest), e = fast_exp2(a * (a * (-0.5f * gelu::kLog2OfE))),
                below = e * tail<T>(a);
    return {z > 0 ? 1 - below : below, e * gelu::kDensity};
  }
};
struct Tanh {
  template <class T>
  __device__ static GeluShare share(float z) {
    const float square = z * z, power = z * fmaf(square, gelu::kCubic * gelu::kLog2OfE, gelu::kLinear * gelu::kLog2OfE),
                e = fast_exp2(-fabsf(power)), above = fast_reciprocal(1 + e), below = e * above;
    return {z > 0 ? above : below, below * above * fmaf(square, 3 * gelu::kCubic, gelu::kLinear)};
  }
};

/// The function that map() applies: gelu(x + bias).
template <class T, int kColumns, class Form>
struct BiasGelu {
  static constexpr int kWidth = kColumns, kAhead = kRowsPerThread;
  const T* x;
  const float* bias;
  T* y;

  __device__ Floats<kWidth> constants(int64_t column) const { return device::load<kWidth>(bias + column); }
  __device__ Pack<T, kWidth> load(const RowPosition& pos) const { return device::load<kWidth>(x + pos.at); }
  __device__ void use(const Floats<kWidth>& offset, const RowPosition& pos, const Pack<T, kWidth>& ahead) const {
    auto values = widened(ahead);
    for (int i = 0; i < kWidth; ++i) {
      const float z = values.values[i] + offset.values[i];
      values.values[i] = z * Form::template share<T>(z).value;
    }
    store(y + pos.at, values);
  }
};

/// For reduce(): writes the gradient of x and sums it per column.
template <class T, int kColumns, class Form>
struct GeluGradient {
  static constexpr int kWidth = kColumns, kAhead = 2;
  struct Ahead {
    Pack<T, kWidth> gradient, x;
  };
  const T *gradient, *x;
  const float* bias;
  T* of_x;

  __device__ Floats<kWidth> constants(int64_t column) const { return device::load<kWidth>(bias + column); }
  __device__ Ahead load(const RowPosition& pos) const {
    return {device::load<kWidth>(gradient + pos.at), device::load<kWidth>(x + pos.at)};
  }
  __device__ void add(const Floats<kWidth>& offset, const RowPosition& pos, const Ahead& ahead, Floats<kWidth>& sum,
                      Floats<kWidth>&) const {
    const auto values = widened(ahead.x);
    auto g = widened(ahead.gradient);
    for (int i = 0; i < kWidth; ++i) {
      const float z = values.values[i] + offset.values[i];
      const GeluShare share = Form::template share<T>(z);
      g.values[i] *= fmaf(z, share.slope, share.value);
      sum.values[i] += g.values[i];
    }
    store(of_x + pos.at, g);
  }
};

struct ToBiasGradient {
  float* of_bias;
  __device__ void operator()(int64_t column, double sum, double) const { of_bias[column] = static_cast<float>(sum); }
};

/// Calls with(sample type, Width<columns per access>, form).
template <class F>
auto by_form(const GeluOperands& o, const F& with) {
  return by_type(o.dtype, o.width, {o.x, o.gradient, o.bias, o.out}, [&](auto type, auto width) {
    return o.tanh ? with(type, width, Tanh()) : with(type, width, Exact());
  });
}

class DeviceGeluLaunches : public GeluLaunches {
 public:
  int64_t partials(const GeluOperands& o) const override {
    return by_form(o, [&](auto, auto width, auto) { return tiling_of(o.rows, o.width, width.value).partials(); });
  }

  void forward(const GeluOperands& o, void* queue) const override {
    by_form(o, [&](auto type, auto width, auto form) {
      using T = decltype(type);
      launch_map(BiasGelu<T, decltype(width)::value, decltype(form)>{samples<T>(o.x), o.bias, static_cast<T*>(o.out)},
                 o.rows, o.width, queue);
    });
  }

  void backward(const GeluOperands& o, const GeluSums& sums, void* queue) const override {
    by_form(o, [&](auto type, auto width, auto form) {
      using T = decltype(type);
      launch_reduce(GeluGradient<T, decltype(width)::value, decltype(form)>{samples<T>(o.gradient), samples<T>(o.x),
                                                                            o.bias, static_cast<T*>(o.out)},
                    ToBiasGradient{sums.of_bias}, o.rows, o.width, sums.partials, queue);
    });
  }
};

}  // namespace
}  // namespace trainopt::kernels::device
