// The kernels behind HeadLaunches and their launches: sums over the pixels of an image, softmax of a row, and bodies
// for map(). Include on_device.cuh or its host counterpart first.
#pragma once

#include "kernels/head/launch.h"
#include "kernels/rows.cuh"

#include <cfloat>
#include <cmath>
#include <limits>

namespace trainopt::kernels::device {
namespace {

/// Packs that a thread has in flight before it uses the first.
inline constexpr int kPacksAhead = 4;

// ---- the mean over pixels ----

/// A block covers `lanes` packs of channels of one image; its threads process kThreads ÷ lanes pixels at once.
struct MeanTiling {
  int64_t images, pixels, channels;
  int lanes, tiles;
  constexpr int64_t blocks() const { return images * tiles; }
};

constexpr MeanTiling mean_tiling_of(int64_t images, int64_t pixels, int64_t channels, int width) {
  const Tiling rows = tiling_of(pixels, channels, width);
  return {images, pixels, channels, rows.lanes, rows.tiles};
}

/// A thread's image, first channel, first pixel, and the distance to its next pixel.
struct MeanPlace {
  int64_t image, channel;
  int pixel, at_once;
};
__device__ inline MeanPlace place_of_mean(const MeanTiling& tiling, int width) {
  const int thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
  return {block / tiling.tiles,
          (static_cast<int64_t>(block % tiling.tiles) * tiling.lanes + thread % tiling.lanes) * width,
          thread / tiling.lanes, kThreads / tiling.lanes};
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) mean_of_pixels(const T* x, T* means, MeanTiling tiling) {
  const auto [image, channel, first_pixel, at_once] = place_of_mean(tiling, kWidth);
  const int thread = static_cast<int>(threadIdx.x);
  Floats<kWidth> sum{};
  if (channel < tiling.channels) {
    const T* from = x + image * tiling.pixels * tiling.channels + channel;
    for (int64_t first = first_pixel; first < tiling.pixels; first += at_once * kPacksAhead) {
      Pack<T, kWidth> ahead[kPacksAhead];
      TRAINOPT_UNROLL
      for (int k = 0; k < kPacksAhead; ++k) {
        const int64_t pixel = first + k * at_once;
        // Past the end: reads the first again and does not use it.
        ahead[k] = load<kWidth>(from + (pixel < tiling.pixels ? pixel : first) * tiling.channels);
      }
      TRAINOPT_UNROLL
      for (int k = 0; k < kPacksAhead; ++k)
        if (first + k * at_once < tiling.pixels) {
          const auto values = widened(ahead[k]);
          for (int i = 0; i < kWidth; ++i) sum.values[i] += values.values[i];
        }
    }
  }
  float* mine = shared_memory<float, kWidth * kThreads>() + thread;
  for (int i = 0; i < kWidth; ++i) mine[i * kThreads] = sum.values[i];
  for (int half = kThreads / 2; half >= tiling.lanes; half /= 2) {
    __syncthreads();
    if (thread < half)
      for (int i = 0; i < kWidth; ++i) mine[i * kThreads] += mine[i * kThreads + half];
  }
  if (thread >= tiling.lanes || channel >= tiling.channels) return;
  for (int i = 0; i < kWidth; ++i) sum.values[i] = mine[i * kThreads] / static_cast<float>(tiling.pixels);
  store(means + image * tiling.channels + channel, sum);
}

/// The gradient ÷ pixels, at every pixel. A thread divides once and writes to many pixels.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) share_among_pixels(const T* gradient, T* out, MeanTiling tiling) {
  const MeanPlace place = place_of_mean(tiling, kWidth);
  if (place.channel >= tiling.channels) return;
  auto share = load_wide<kWidth>(gradient + place.image * tiling.channels + place.channel);
  for (int i = 0; i < kWidth; ++i) share.values[i] /= static_cast<float>(tiling.pixels);
  Pack<T, kWidth> packed;
  for (int i = 0; i < kWidth; ++i) narrow(share.values[i], packed.values[i]);
  T* to = out + place.image * tiling.pixels * tiling.channels + place.channel;
  for (int64_t pixel = place.pixel; pixel < tiling.pixels; pixel += place.at_once)
    write(to + pixel * tiling.channels, packed);
}

// ---- softmax cross-entropy ----

/// Running sums over part of a row's logits, in one sweep (Milakov and Gimelshein 2018): Σ e^(x − largest) and Σ
/// (largest − x) for the largest so far. `largest` starts from the lowest number, not −∞, because −∞ − −∞ would be NaN.
struct Softmax {
  float largest, sum, gap_sum, count;
};

/// Σ (largest − x) for another `largest` that is at least the current one.
__device__ inline float gap_sum_from(const Softmax& s, float largest) {
  return s.count > 0 ? fmaf(s.count, largest - s.largest, s.gap_sum) : 0;
}

__device__ inline Softmax joined(const Softmax& a, const Softmax& b) {
  const float largest = fmaxf(a.largest, b.largest);
  return {largest, a.sum * expf(a.largest - largest) + b.sum * expf(b.largest - largest),
          gap_sum_from(a, largest) + gap_sum_from(b, largest), a.count + b.count};
}

/// e^x for x ≤ 0. For 16-bit logits in a quarter of the instructions, with a relative error of about 1e-7 · (2 + |x|):
/// far below their rounding where e^x counts.
template <class T>
__device__ inline float exp_below(float x) {
  constexpr float kLog2OfE = 1.44269504f;
  if constexpr (sizeof(T) == 2) return fast_exp2(x * kLog2OfE);
  return expf(x);
}

/// Threads per row. Each takes only a few packs, so that a block has many rows and moves many bytes between two
/// barriers.
constexpr int row_lanes_of(int64_t classes, int width) {
  int lanes = 1;
  while (lanes < kThreads && static_cast<int64_t>(lanes) * width * kPacksAhead < classes) lanes *= 2;
  return lanes;
}

/// Calls use(first class, its pack) for all packs of one thread, which starts at class `begin_at` and advances by
/// `step`. Calls begin(packs) on each group of kPacksAhead loaded packs first.
template <class T, int kWidth, class Begin, class Use>
__device__ void sweep_row(const T* logits, int64_t classes, int64_t begin_at, int step, const Begin& begin,
                          const Use& use) {
  for (int64_t first = begin_at; first < classes; first += step * kPacksAhead) {
    Pack<T, kWidth> ahead[kPacksAhead];
    TRAINOPT_UNROLL
    for (int k = 0; k < kPacksAhead; ++k) {
      const int64_t c = first + k * step;
      ahead[k] = load<kWidth>(logits + (c < classes ? c : first));  // past the end: loads the first again, unused
    }
    begin(ahead);
    TRAINOPT_UNROLL
    for (int k = 0; k < kPacksAhead; ++k)
      if (first + k * step < classes) use(first + k * step, ahead[k]);
  }
}

/// Ignores NaN, which the sums keep.
template <class T, int kWidth>
__device__ inline float largest_of(const Pack<T, kWidth> (&packs)[kPacksAhead], float largest) {
  TRAINOPT_UNROLL
  for (int k = 0; k < kPacksAhead; ++k) {
    const auto values = widened(packs[k]);
    for (int i = 0; i < kWidth; ++i) largest = fmaxf(largest, values.values[i]);
  }
  return largest;
}

/// Loss and gradient of rows, with `lanes` threads per row. They sweep a row twice; the second sweep reads from the
/// caches.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads, 3) cross_entropy(LossOperands o, int lanes) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % lanes, step = lanes * kWidth;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / lanes) + thread / lanes,
                inside = row < o.rows ? row : o.rows - 1;
  const T* logits = static_cast<const T*>(o.logits) + inside * o.classes;
  const auto sweep = [&](const auto& begin, const auto& use) {
    sweep_row<T, kWidth>(logits, o.classes, lane * kWidth, step, begin, use);
  };

  Softmax own{-FLT_MAX, 0, 0, 0};
  sweep(
      [&](const Pack<T, kWidth>(&ahead)[kPacksAhead]) {
        const float largest = largest_of(ahead, own.largest);
        own = {largest, own.sum * expf(own.largest - largest), gap_sum_from(own, largest), own.count};
      },
      [&](int64_t, const Pack<T, kWidth>& pack) {
        const auto values = widened(pack);
        for (int i = 0; i < kWidth; ++i) {
          const float below = values.values[i] - own.largest;
          own.sum += exp_below<T>(below);
          own.gap_sum -= below;
        }
        own.count += kWidth;
      });
  Softmax* shared = shared_memory<Softmax, kThreads>() + thread;
  *shared = own;
  for (int half = lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) *shared = joined(*shared, shared[half]);
  }
  __syncthreads();
  const Softmax all = *(shared - lane);
  if (row >= o.rows) return;

  const int64_t target = o.targets[row];
  const bool is_class = target >= 0 && target < o.classes;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const float of_target = 1 - o.smoothing, of_all = o.smoothing / static_cast<float>(o.classes);
  const float factor = o.gradient_scale / all.sum, offset = is_class ? -of_all * o.gradient_scale : kNan,
              of_right = of_target * o.gradient_scale;
  T* gradient = static_cast<T*>(o.gradient) + row * o.classes;
  sweep([](const auto&) {},
        [&](int64_t c, const Pack<T, kWidth>& pack) {
          auto g = widened(pack);
          const int right = target >= c && target < c + kWidth ? static_cast<int>(target - c) : kWidth;
          for (int i = 0; i < kWidth; ++i)
            g.values[i] = fmaf(exp_below<T>(g.values[i] - all.largest), factor, offset) - (i == right ? of_right : 0);
          store(gradient + c, g);
        });
  if (lane != 0) return;
  const float loss = of_target * (all.largest - wide(logits[is_class ? target : 0])) +
                     logf(all.sum);  // the weights of the logarithm, 1 − s and s, add up to 1
  o.row_losses[row] = !is_class         ? kNan
                      : o.smoothing > 0 ? fmaf(of_all, all.gap_sum, loss)
                                        : loss;  // 0 · ∞ would be NaN
}

/// One block adds in float64, always in the same order.
__global__ void __launch_bounds__(kThreads) mean_of_rows(const float* row_losses, int64_t rows, float* loss) {
  const int thread = static_cast<int>(threadIdx.x);
  double sum = 0;
  for (int64_t row = thread; row < rows; row += kThreads) sum += static_cast<double>(row_losses[row]);
  double* mine = shared_memory<double, kThreads>() + thread;
  *mine = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) *mine += mine[half];
  }
  if (thread == 0) *loss = static_cast<float>(*mine / static_cast<double>(rows));
}

/// For map(): scales by the upstream gradient in place.
template <class T, int kClasses>
struct TimesUpstream {
  static constexpr int kWidth = kClasses, kAhead = kRowsPerThread;
  T* values;
  const float* upstream;
  float factor;

  __device__ float constants(int64_t) const { return *upstream * factor; }
  __device__ Pack<T, kWidth> load(const RowPosition& pos) const { return device::load<kWidth>(values + pos.at); }
  __device__ void use(float by, const RowPosition& pos, const Pack<T, kWidth>& ahead) const {
    auto scaled = widened(ahead);
    for (int i = 0; i < kWidth; ++i) scaled.values[i] *= by;
    store(values + pos.at, scaled);
  }
};

// ---- launches ----

class DeviceHeadLaunches : public HeadLaunches {
 public:
  void mean(const MeanOperands& o, void* queue) const override {
    by_type(o.dtype, o.channels, {o.from, o.to}, [&](auto type, auto width) {
      using T = decltype(type);
      constexpr int kWidth = decltype(width)::value;
      const MeanTiling tiling = mean_tiling_of(o.images, o.pixels, o.channels, kWidth);
      launch(queue, tiling.blocks(), kThreads, mean_of_pixels<T, kWidth>, samples<T>(o.from), static_cast<T*>(o.to),
             tiling);
    });
  }

  void mean_gradient(const MeanOperands& o, void* queue) const override {
    by_type(o.dtype, o.channels, {o.from, o.to}, [&](auto type, auto width) {
      using T = decltype(type);
      constexpr int kWidth = decltype(width)::value;
      const MeanTiling tiling = mean_tiling_of(o.images, o.pixels, o.channels, kWidth);
      launch(queue, tiling.blocks(), kThreads, share_among_pixels<T, kWidth>, samples<T>(o.from), static_cast<T*>(o.to),
             tiling);
    });
  }

  void cross_entropy(const LossOperands& o, void* queue) const override {
    by_type(o.dtype, o.classes, {o.logits, o.gradient}, [&](auto type, auto width) {
      constexpr int kWidth = decltype(width)::value;
      const int lanes = row_lanes_of(o.classes, kWidth);
      launch(queue, divided_up(o.rows, kThreads / lanes), kThreads, device::cross_entropy<decltype(type), kWidth>, o,
             lanes);
    });
    launch(queue, 1, kThreads, mean_of_rows, o.row_losses, o.rows, o.loss);
  }

  void finish_gradient(const ScaleOperands& o, void* queue) const override {
    by_type(o.dtype, o.classes, {o.values}, [&](auto type, auto width) {
      using T = decltype(type);
      launch_map(TimesUpstream<T, decltype(width)::value>{static_cast<T*>(o.values), o.upstream, o.factor}, o.rows,
                 o.classes, queue);
    });
  }
};

}  // namespace
}  // namespace trainopt::kernels::device
