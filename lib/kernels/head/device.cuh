// The kernels behind HeadLaunches and their launches: sums over the pixels of an image and bodies for map(); loss.cuh
// has the loss. Include on_device.cuh or its host counterpart first.
#pragma once

#include "kernels/head/loss.cuh"

namespace trainopt::kernels::device {
namespace {

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

// ---- the gradient of the loss, finished ----

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
    by_type(o.dtype, o.stride, {o.logits, o.gradient}, [&](auto type, auto width) {
      constexpr int kWidth = decltype(width)::value;
      const int lanes = row_lanes_of(o.stride, kWidth);
      launch(queue, divided_up(o.rows, kThreads / lanes), kThreads, device::cross_entropy<decltype(type), kWidth>, o,
             lanes);
    });
  }

  void mean_loss(const MeanLossOperands& o, void* queue) const override { launch(queue, 1, kThreads, mean_of_rows, o); }

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
