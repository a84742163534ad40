// What each pass does with a thread's channels of a row: the bodies of map() and reduce(). T: a sample's type;
// kChannels: as many at once.
#pragma once

#include "optimizations/fused_kernels/cuda/kernels.cuh"
#include "optimizations/fused_kernels/cuda/passes.h"

#include <cmath>

namespace trainopt::fused_kernels::cuda {
namespace {

/// scale · x + shift, rounded once, in every pass alike: a mask that is computed again must be the one that was.
template <int kWidth>
struct Line {
  Floats<kWidth> scale, shift;
  __device__ float of(float x, int i) const { return fmaf(x, scale.values[i], shift.values[i]); }
};
struct LineFrom {
  const float *scale, *shift;
  template <int kWidth>
  __device__ Line<kWidth> at(int64_t channel) const {
    return {load<kWidth>(scale + channel), load<kWidth>(shift + channel)};
  }
};

// ---- forward ----

/// Sums of x − pivot and of its squares. The pivot is x's first row: squares of large values that differ little would
/// leave nothing of the variance.
template <class T, int kChannels>
struct Distances {
  static constexpr int kWidth = kChannels, kAhead = kRowsInTurn;
  const T* x;

  __device__ static float pivot_of(float first) { return std::isfinite(first) ? first : 0; }
  __device__ Floats<kWidth> known(int64_t channel) const {
    auto pivot = load_wide<kWidth>(x + channel);
    for (int i = 0; i < kWidth; ++i) pivot.values[i] = pivot_of(pivot.values[i]);
    return pivot;
  }
  __device__ Pack<T, kWidth> load(const Spot& spot) const { return cuda::load<kWidth>(x + spot.at); }
  __device__ void add(const Floats<kWidth>& pivot, const Spot&, const Pack<T, kWidth>& ahead, Floats<kWidth>& sum,
                      Floats<kWidth>& square) const {
    for (int i = 0; i < kWidth; ++i) {
      const float distance = wide(ahead.values[i]) - pivot.values[i];
      sum.values[i] += distance;
      square.values[i] = fmaf(distance, distance, square.values[i]);
    }
  }
};

template <class T>
struct ToMoments {
  const T* x;
  int64_t rows;
  float *mean, *variance;
  __device__ void operator()(int64_t channel, double sum, double square) const {
    const double from_pivot = sum / static_cast<double>(rows),
                 apart = square / static_cast<double>(rows) - from_pivot * from_pivot;
    mean[channel] = static_cast<float>(static_cast<double>(Distances<T, 1>::pivot_of(wide(x[channel]))) + from_pivot);
    variance[channel] = static_cast<float>(apart < 0 ? 0 : apart);
  }
};
struct ToSums {
  float *gradient, *product;
  __device__ void operator()(int64_t channel, double sum, double other) const {
    gradient[channel] = static_cast<float>(sum);
    product[channel] = static_cast<float>(other);
  }
};

template <class T, int kChannels, bool kAdds, bool kRelu>
struct Apply {
  static constexpr int kWidth = kChannels, kAhead = kRowsInTurn;
  struct Ahead {
    Pack<T, kWidth> x, residual;
  };
  const T *x, *residual;
  LineFrom line;
  T* out;

  __device__ Line<kWidth> known(int64_t channel) const { return line.at<kWidth>(channel); }
  __device__ Ahead load(const Spot& spot) const {
    Ahead ahead{cuda::load<kWidth>(x + spot.at), {}};
    if constexpr (kAdds) ahead.residual = cuda::load<kWidth>(residual + spot.at);
    return ahead;
  }
  __device__ void use(const Line<kWidth>& known, const Spot& spot, const Ahead& ahead) const {
    Floats<kWidth> y;
    for (int i = 0; i < kWidth; ++i) {
      float z = known.of(wide(ahead.x.values[i]), i);
      if constexpr (kAdds) z += wide(ahead.residual.values[i]);
      y.values[i] = kRelu && z <= 0 ? 0 : z;  // NaN passes
    }
    store(out + spot.at, y);
  }
};

/// Max-pool 3×3, stride 2, padding 1. Rows are windows here.
struct Windows {
  uint32_t height, width, pooled_height, pooled_width;
  int64_t channels;
};

template <class T, int kChannels>
struct Pool {
  static constexpr int kWidth = kChannels, kAhead = 1, kSide = 3, kNowhere = kSide * kSide;
  struct Ahead {
    Pack<T, kWidth> pixels[kSide * kSide];
    uint32_t inside;  ///< a bit for each
  };
  const T* x;
  Windows windows;
  LineFrom line;
  T* out;
  uint8_t* places;
  T* chosen;

  __device__ Line<kWidth> known(int64_t channel) const { return line.at<kWidth>(channel); }
  __device__ Ahead load(const Spot& spot) const {
    const auto window = static_cast<uint32_t>(spot.row);
    const uint32_t lines = window / windows.pooled_width, image = lines / windows.pooled_height;
    // One before the image's edge wraps around to a large number: not inside.
    const uint32_t top = (lines - image * windows.pooled_height) * 2 - 1,
                   left = (window - lines * windows.pooled_width) * 2 - 1;
    Ahead ahead{};
    for (uint32_t place = 0; place < kSide * kSide; ++place) {
      const uint32_t h = top + place / kSide, w = left + place % kSide;
      if (h >= windows.height || w >= windows.width) continue;
      ahead.inside |= 1u << place;
      ahead.pixels[place] = cuda::load<kWidth>(
          x + ((static_cast<int64_t>(image) * windows.height + h) * windows.width + w) * windows.channels +
          spot.channel);
    }
    return ahead;
  }
  __device__ void use(const Line<kWidth>& known, const Spot& spot, const Ahead& ahead) const {
    Floats<kWidth> best{};  // ReLU: nothing below counts
    Pack<uint8_t, kWidth> found;
    Pack<T, kWidth> picked{};
    for (int i = 0; i < kWidth; ++i) {
      int from = kNowhere;
      for (int place = 0; place < kSide * kSide; ++place) {
        const float z = known.of(wide(ahead.pixels[place].values[i]), i);
        if ((ahead.inside >> place & 1u) == 0 || z <= best.values[i]) continue;
        if (z > best.values[i] || z != z) {  // of equal values the first, NaN above all
          best.values[i] = z;
          from = place;
          picked.values[i] = ahead.pixels[place].values[i];
        }
      }
      found.values[i] = static_cast<uint8_t>(from);
    }
    store(out + spot.at, best);
    write(places + spot.at, found);
    write(chosen + spot.at, picked);
  }
};

// ---- between the passes ----

struct MakeLine {
  LineOperands o;
  __device__ void operator()(int64_t c) const {
    const float inverse = 1 / sqrtf(o.variance[c] + o.epsilon), scale = o.weight[c] * inverse;
    o.inverse[c] = inverse;
    o.scale[c] = scale;
    o.shift[c] = o.bias[c] - o.mean[c] * scale;
    o.running_mean[c] += o.momentum * (o.mean[c] - o.running_mean[c]);
    o.running_var[c] += o.momentum * (o.variance[c] * o.unbiased - o.running_var[c]);
    if (c == 0) ++*o.batches;
  }
};

struct MakeCoefficients {
  CoefficientOperands o;
  __device__ void operator()(int64_t c) const {
    const float of_weight = o.product[c] * o.inverse[c], of_x = o.scale[c] * o.inverse[c] * of_weight * o.share;
    o.of_weight[c] = of_weight;
    o.of_x[c] = of_x;
    o.rest[c] = o.scale[c] * o.gradient[c] * o.share - of_x * o.mean[c];
  }
};

// ---- backward: where g comes from ----

template <class T, int kWidth>
struct Open {
  static constexpr int kAhead = 2;
  using Ahead = Pack<T, kWidth>;
  const T* gradient;

  __device__ Nothing known(int64_t) const { return {}; }
  __device__ Ahead load(const Spot& spot) const { return cuda::load<kWidth>(gradient + spot.at); }
  __device__ Floats<kWidth> of(Nothing, const Spot&, const Ahead& ahead, const Floats<kWidth>&) const {
    return widened(ahead);
  }
};

template <class T, int kWidth>
struct ThroughRelu {
  static constexpr int kAhead = 2;
  using Ahead = Pack<T, kWidth>;
  const T* gradient;
  LineFrom line;

  __device__ Line<kWidth> known(int64_t channel) const { return line.at<kWidth>(channel); }
  __device__ Ahead load(const Spot& spot) const { return cuda::load<kWidth>(gradient + spot.at); }
  __device__ Floats<kWidth> of(const Line<kWidth>& known, const Spot&, const Ahead& ahead,
                               const Floats<kWidth>& x) const {
    Floats<kWidth> g;
    for (int i = 0; i < kWidth; ++i) g.values[i] = known.of(x.values[i], i) > 0 ? wide(ahead.values[i]) : 0;
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

  __device__ Nothing known(int64_t) const { return {}; }
  __device__ Ahead load(const Spot& spot) const {
    return {cuda::load<kWidth>(gradient + spot.at), cuda::load<kWidth>(y + spot.at)};
  }
  __device__ Floats<kWidth> of(Nothing, const Spot& spot, const Ahead& ahead, const Floats<kWidth>&) const {
    Floats<kWidth> passed;
    for (int i = 0; i < kWidth; ++i)
      passed.values[i] = wide(ahead.y.values[i]) > 0 ? wide(ahead.gradient.values[i]) : 0;
    store(g + spot.at, passed);
    return passed;
  }
};

/// Where there is a place.
template <class T, int kWidth>
struct WherePlaced {
  static constexpr int kAhead = 2;
  struct Ahead {
    Pack<T, kWidth> gradient;
    Pack<uint8_t, kWidth> places;
  };
  const T* gradient;
  const uint8_t* places;

  __device__ Nothing known(int64_t) const { return {}; }
  __device__ Ahead load(const Spot& spot) const {
    return {cuda::load<kWidth>(gradient + spot.at), cuda::load<kWidth>(places + spot.at)};
  }
  __device__ Floats<kWidth> of(Nothing, const Spot&, const Ahead& ahead, const Floats<kWidth>&) const {
    Floats<kWidth> g;
    for (int i = 0; i < kWidth; ++i)
      g.values[i] = ahead.places.values[i] == Pool<T, kWidth>::kNowhere ? 0 : wide(ahead.gradient.values[i]);
    return g;
  }
};

/// By pixel: each looks at the windows that it is in, at most two by two. So no two threads add to one number.
template <class T, int kWidth>
struct ThroughPool {
  static constexpr int kAhead = 1, kMost = 4;
  struct Ahead {
    Pack<T, kWidth> gradients[kMost];
    Pack<uint8_t, kWidth> places[kMost];
    uint32_t mine[kMost];  ///< the pixel's own place in the window; a number that no place has where there is none
  };
  const T* gradient;
  const uint8_t* places;
  Windows windows;

  __device__ Nothing known(int64_t) const { return {}; }
  __device__ Ahead load(const Spot& spot) const {
    constexpr uint32_t kNone = 255;
    const auto pixel = static_cast<uint32_t>(spot.row);
    const uint32_t lines = pixel / windows.width, image = lines / windows.height, h = lines - image * windows.height,
                   w = pixel - lines * windows.width;
    Ahead ahead{};
    for (uint32_t i = 0; i < kMost; ++i) {
      // Windows begin one before the pixels 0, 2, 4, …: an even pixel is in one, an odd pixel in two, but for the last.
      const uint32_t p = (h + i / 2) / 2, q = (w + i % 2) / 2;
      const bool there = (i / 2 == 0 || (h % 2 == 1 && p < windows.pooled_height)) &&
                         (i % 2 == 0 || (w % 2 == 1 && q < windows.pooled_width));
      ahead.mine[i] = there ? (h + 1 - 2 * p) * 3 + w + 1 - 2 * q : kNone;
      if (!there) continue;
      const int64_t at =
          ((static_cast<int64_t>(image) * windows.pooled_height + p) * windows.pooled_width + q) * windows.channels +
          spot.channel;
      ahead.gradients[i] = cuda::load<kWidth>(gradient + at);
      ahead.places[i] = cuda::load<kWidth>(places + at);
    }
    return ahead;
  }
  __device__ Floats<kWidth> of(Nothing, const Spot&, const Ahead& ahead, const Floats<kWidth>&) const {
    Floats<kWidth> g{};
    for (int window = 0; window < kMost; ++window)
      for (int i = 0; i < kWidth; ++i)
        g.values[i] +=
            ahead.places[window].values[i] == ahead.mine[window] ? wide(ahead.gradients[window].values[i]) : 0;
    return g;
  }
};

// ---- backward: what becomes of g ----

template <class T, int kChannels, class Source>
struct WithX {
  typename Source::Ahead source;
  Pack<T, kChannels> x;
};

/// Sums of g and of g · (x − mean).
template <class T, int kChannels, class Source>
struct Sums {
  static constexpr int kWidth = kChannels, kAhead = Source::kAhead;
  struct Known {
    decltype(Source().known(0)) source;
    Floats<kWidth> mean;
  };
  Source source;
  const T* x;
  const float* mean;

  __device__ Known known(int64_t channel) const { return {source.known(channel), cuda::load<kWidth>(mean + channel)}; }
  __device__ WithX<T, kWidth, Source> load(const Spot& spot) const {
    return {source.load(spot), cuda::load<kWidth>(x + spot.at)};
  }
  __device__ void add(const Known& known, const Spot& spot, const WithX<T, kWidth, Source>& ahead, Floats<kWidth>& sum,
                      Floats<kWidth>& product) const {
    const auto values = widened(ahead.x), g = source.of(known.source, spot, ahead.source, values);
    for (int i = 0; i < kWidth; ++i) {
      sum.values[i] += g.values[i];
      product.values[i] = fmaf(g.values[i], values.values[i] - known.mean.values[i], product.values[i]);
    }
  }
};

/// of_gradient · g + of_x · x + rest
template <class T, int kChannels, class Source>
struct InputGradient {
  static constexpr int kWidth = kChannels, kAhead = Source::kAhead;
  struct Known {
    decltype(Source().known(0)) source;
    Floats<kWidth> of_gradient, of_x, rest;
  };
  Source source;
  const T* x;
  const float *of_gradient, *of_x, *rest;
  T* out;

  __device__ Known known(int64_t channel) const {
    return {source.known(channel), cuda::load<kWidth>(of_gradient + channel), cuda::load<kWidth>(of_x + channel),
            cuda::load<kWidth>(rest + channel)};
  }
  __device__ WithX<T, kWidth, Source> load(const Spot& spot) const {
    return {source.load(spot), cuda::load<kWidth>(x + spot.at)};
  }
  __device__ void use(const Known& known, const Spot& spot, const WithX<T, kWidth, Source>& ahead) const {
    const auto values = widened(ahead.x), g = source.of(known.source, spot, ahead.source, values);
    Floats<kWidth> result;
    for (int i = 0; i < kWidth; ++i)
      result.values[i] = fmaf(g.values[i], known.of_gradient.values[i],
                              fmaf(values.values[i], known.of_x.values[i], known.rest.values[i]));
    store(out + spot.at, result);
  }
};

}  // namespace
}  // namespace trainopt::fused_kernels::cuda
