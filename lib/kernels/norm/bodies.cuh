// Batch-norm: the bodies of map() and reduce(), which process a thread's channels of a row. T: sample type; kChannels:
// channels per thread.
#pragma once

#include "kernels/norm/launch.h"
#include "kernels/rows.cuh"

#include <cmath>

namespace trainopt::kernels::device {
namespace {

/// scale · x + shift, rounded once. All passes compute it alike: a recomputed mask must equal the original.
template <int kWidth>
struct ScaleShift {
  Floats<kWidth> scale, shift;
  __device__ float of(float x, int i) const { return fmaf(x, scale.values[i], shift.values[i]); }
};
struct ScaleShiftFrom {
  const float *scale, *shift;
  template <int kWidth>
  __device__ ScaleShift<kWidth> at(int64_t channel) const {
    return {load<kWidth>(scale + channel), load<kWidth>(shift + channel)};
  }
};

// ---- forward ----

/// Sums of x − pivot and of its squares. The pivot is x's first row: for large values that differ little, sums of plain
/// squares would lose the variance.
template <class T, int kChannels>
struct Distances {
  static constexpr int kWidth = kChannels, kAhead = kRowsPerThread;
  const T* x;

  __device__ static float pivot_of(float first) { return std::isfinite(first) ? first : 0; }
  __device__ Floats<kWidth> constants(int64_t channel) const {
    auto pivot = load_wide<kWidth>(x + channel);
    for (int i = 0; i < kWidth; ++i) pivot.values[i] = pivot_of(pivot.values[i]);
    return pivot;
  }
  __device__ Pack<T, kWidth> load(const RowPosition& pos) const { return device::load<kWidth>(x + pos.at); }
  __device__ void add(const Floats<kWidth>& pivot, const RowPosition&, const Pack<T, kWidth>& ahead,
                      Floats<kWidth>& sum, Floats<kWidth>& square) const {
    const auto values = widened(ahead);
    for (int i = 0; i < kWidth; ++i) {
      const float distance = values.values[i] - pivot.values[i];
      sum.values[i] += distance;
      square.values[i] = fmaf(distance, distance, square.values[i]);
    }
  }
};

/// For fold(): the statistics of a channel from its two sums.
template <class T>
struct ToStatistics {
  const T* x;
  int64_t rows;
  StatisticsOperands o;

  __device__ void operator()(int64_t c, double sum, double square) const {
    const double from_pivot = sum / static_cast<double>(rows),
                 biased = square / static_cast<double>(rows) - from_pivot * from_pivot;
    const auto mean = static_cast<float>(static_cast<double>(Distances<T, 1>::pivot_of(wide(x[c]))) + from_pivot),
               variance = static_cast<float>(biased < 0 ? 0 : biased);
    const float inverse = 1 / sqrtf(variance + o.epsilon), scale = o.weight[c] * inverse;
    o.mean[c] = mean;
    o.inverse[c] = inverse;
    o.scale[c] = scale;
    o.shift[c] = o.bias[c] - mean * scale;
    o.running_mean[c] += o.momentum * (mean - o.running_mean[c]);
    o.running_var[c] += o.momentum * (variance * o.unbiased - o.running_var[c]);
    if (c == 0) ++*o.batches;
  }
};

/// For fold(): the coefficients of a channel from Σ g and Σ g · (x − mean).
struct ToCoefficients {
  CoefficientOperands o;

  __device__ void operator()(int64_t c, double gradients, double products) const {
    const auto of_bias = static_cast<float>(gradients);
    const float inverse = o.inverse[c], scale = o.scale[c], of_weight = static_cast<float>(products) * inverse,
                of_x = scale * inverse * of_weight * o.share;
    o.of_bias[c] = of_bias;
    o.of_weight[c] = of_weight;
    o.of_x[c] = of_x;
    o.rest[c] = scale * of_bias * o.share - of_x * o.mean[c];
  }
};

template <class T, int kChannels, bool kAdds, bool kRelu>
struct Apply {
  static constexpr int kWidth = kChannels, kAhead = kRowsPerThread;
  struct Ahead {
    Pack<T, kWidth> x, residual;
  };
  const T *x, *residual;
  ScaleShiftFrom scale_shift;
  T* out;

  __device__ ScaleShift<kWidth> constants(int64_t channel) const { return scale_shift.at<kWidth>(channel); }
  __device__ Ahead load(const RowPosition& pos) const {
    Ahead ahead{device::load<kWidth>(x + pos.at), {}};
    if constexpr (kAdds) ahead.residual = device::load<kWidth>(residual + pos.at);
    return ahead;
  }
  __device__ void use(const ScaleShift<kWidth>& constants, const RowPosition& pos, const Ahead& ahead) const {
    const auto values = widened(ahead.x);
    [[maybe_unused]] Floats<kWidth> added{};
    if constexpr (kAdds) added = widened(ahead.residual);
    Floats<kWidth> y;
    for (int i = 0; i < kWidth; ++i) {
      float z = constants.of(values.values[i], i);
      if constexpr (kAdds) z += added.values[i];
      y.values[i] = kRelu && z <= 0 ? 0 : z;  // NaN stays NaN
    }
    store(out + pos.at, y);
  }
};

// ---- backward: the source of g ----

template <class T, int kWidth>
struct Open {
  static constexpr int kAhead = 2;
  using Ahead = Pack<T, kWidth>;
  const T* gradient;

  __device__ NoConstants constants(int64_t) const { return {}; }
  __device__ Ahead load(const RowPosition& pos) const { return device::load<kWidth>(gradient + pos.at); }
  __device__ Floats<kWidth> of(NoConstants, const RowPosition&, const Ahead& ahead, const Floats<kWidth>&) const {
    return widened(ahead);
  }
};

template <class T, int kWidth>
struct ThroughRelu {
  static constexpr int kAhead = 2;
  using Ahead = Pack<T, kWidth>;
  const T* gradient;
  ScaleShiftFrom scale_shift;

  __device__ ScaleShift<kWidth> constants(int64_t channel) const { return scale_shift.at<kWidth>(channel); }
  __device__ Ahead load(const RowPosition& pos) const { return device::load<kWidth>(gradient + pos.at); }
  __device__ Floats<kWidth> of(const ScaleShift<kWidth>& constants, const RowPosition&, const Ahead& ahead,
                               const Floats<kWidth>& x) const {
    auto g = widened(ahead);
    for (int i = 0; i < kWidth; ++i)
      if (!(constants.of(x.values[i], i) > 0)) g.values[i] = 0;
    return g;
  }
};

template <class T, int kWidth>
struct ThroughOutput {
  static constexpr int kAhead = 2;
  struct Ahead {
    Pack<T, kWidth> gradient, y;
  };
  const T *gradient, *y;
  T* g;

  __device__ NoConstants constants(int64_t) const { return {}; }
  __device__ Ahead load(const RowPosition& pos) const {
    return {device::load<kWidth>(gradient + pos.at), device::load<kWidth>(y + pos.at)};
  }
  __device__ Floats<kWidth> of(NoConstants, const RowPosition& pos, const Ahead& ahead, const Floats<kWidth>&) const {
    const auto output = widened(ahead.y);
    auto passed = widened(ahead.gradient);
    for (int i = 0; i < kWidth; ++i)
      if (!(output.values[i] > 0)) passed.values[i] = 0;
    store(g + pos.at, passed);
    return passed;
  }
};

// ---- backward: the uses of g ----

template <class T, int kChannels, class Source>
struct WithX {
  typename Source::Ahead source;
  Pack<T, kChannels> x;
};

/// Sums of g and of g · (x − mean).
template <class T, int kChannels, class Source>
struct Sums {
  static constexpr int kWidth = kChannels, kAhead = Source::kAhead;
  struct Constants {
    decltype(Source().constants(0)) source;
    Floats<kWidth> mean;
  };
  Source source;
  const T* x;
  const float* mean;

  __device__ Constants constants(int64_t channel) const {
    return {source.constants(channel), device::load<kWidth>(mean + channel)};
  }
  __device__ WithX<T, kWidth, Source> load(const RowPosition& pos) const {
    return {source.load(pos), device::load<kWidth>(x + pos.at)};
  }
  __device__ void add(const Constants& constants, const RowPosition& pos, const WithX<T, kWidth, Source>& ahead,
                      Floats<kWidth>& sum, Floats<kWidth>& product) const {
    const auto values = widened(ahead.x), g = source.of(constants.source, pos, ahead.source, values);
    for (int i = 0; i < kWidth; ++i) {
      sum.values[i] += g.values[i];
      product.values[i] = fmaf(g.values[i], values.values[i] - constants.mean.values[i], product.values[i]);
    }
  }
};

/// scale · g + of_x · x + rest
template <int kWidth>
struct Combination {
  Floats<kWidth> scale, of_x, rest;
  __device__ float of(float g, float x, int i) const {
    return fmaf(g, scale.values[i], fmaf(x, of_x.values[i], rest.values[i]));
  }
};
struct CombinationFrom {
  const float *scale, *of_x, *rest;
  template <int kWidth>
  __device__ Combination<kWidth> at(int64_t channel) const {
    return {load<kWidth>(scale + channel), load<kWidth>(of_x + channel), load<kWidth>(rest + channel)};
  }
};

template <class T, int kChannels, class Source>
struct InputGradient {
  static constexpr int kWidth = kChannels, kAhead = Source::kAhead;
  struct Constants {
    decltype(Source().constants(0)) source;
    Combination<kWidth> by;
  };
  Source source;
  const T* x;
  CombinationFrom by;
  T* out;

  __device__ Constants constants(int64_t channel) const { return {source.constants(channel), by.at<kWidth>(channel)}; }
  __device__ WithX<T, kWidth, Source> load(const RowPosition& pos) const {
    return {source.load(pos), device::load<kWidth>(x + pos.at)};
  }
  __device__ void use(const Constants& constants, const RowPosition& pos, const WithX<T, kWidth, Source>& ahead) const {
    const auto values = widened(ahead.x), g = source.of(constants.source, pos, ahead.source, values);
    Floats<kWidth> result;
    for (int i = 0; i < kWidth; ++i) result.values[i] = constants.by.of(g.values[i], values.values[i], i);
    store(out + pos.at, result);
  }
};

}  // namespace
}  // namespace trainopt::kernels::device
