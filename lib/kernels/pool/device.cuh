// The max-pool: its bodies for map() and reduce(), and the implementation of PoolLaunches, which selects the body, the
// type and width, and the number of blocks. Include on_device.cuh or its host counterpart first.
#pragma once

#include "kernels/norm/bodies.cuh"
#include "kernels/pool/launch.h"

namespace trainopt::kernels::device {
namespace {

/// Max-pool 3×3, stride 2, padding 1. Here a row is a window.
struct Windows {
  uint32_t height, width, pooled_height, pooled_width;
  int64_t channels;
};

template <class T, int kChannels>
struct Pool {
  static constexpr int kWidth = kChannels, kAhead = 1, kSide = 3, kNoPosition = kSide * kSide;
  struct Ahead {
    Pack<T, kWidth> pixels[kSide * kSide];
    uint32_t inside;  ///< one bit per pixel: whether it is inside the image
  };
  const T* x;
  Windows windows;
  ScaleShiftFrom scale_shift;
  T* out;
  uint8_t* positions;
  T* chosen;

  __device__ ScaleShift<kWidth> constants(int64_t channel) const { return scale_shift.at<kWidth>(channel); }
  __device__ Ahead load(const RowPosition& pos) const {
    const auto window = static_cast<uint32_t>(pos.row);
    const uint32_t lines = window / windows.pooled_width, image = lines / windows.pooled_height;
    // The position before the edge of the image wraps around to a large number and counts as outside.
    const uint32_t top = (lines - image * windows.pooled_height) * 2 - 1,
                   left = (window - lines * windows.pooled_width) * 2 - 1;
    Ahead ahead{};
    for (uint32_t position = 0; position < kSide * kSide; ++position) {
      const uint32_t h = top + position / kSide, w = left + position % kSide;
      if (h >= windows.height || w >= windows.width) continue;
      ahead.inside |= 1u << position;
      ahead.pixels[position] = device::load<kWidth>(
          x + ((static_cast<int64_t>(image) * windows.height + h) * windows.width + w) * windows.channels +
          pos.channel);
    }
    return ahead;
  }
  __device__ void use(const ScaleShift<kWidth>& constants, const RowPosition& pos, const Ahead& ahead) const {
    Floats<kWidth> best{};  // ReLU: only values above 0 count
    Pack<uint8_t, kWidth> found;
    Pack<T, kWidth> picked{};
    for (int i = 0; i < kWidth; ++i) {
      int from = kNoPosition;
      for (int position = 0; position < kSide * kSide; ++position) {
        const float z = constants.of(wide(ahead.pixels[position].values[i]), i);
        if ((ahead.inside >> position & 1u) == 0 || z <= best.values[i]) continue;
        if (z > best.values[i] || z != z) {  // the first of equal values; NaN beats all
          best.values[i] = z;
          from = position;
          picked.values[i] = ahead.pixels[position].values[i];
        }
      }
      found.values[i] = static_cast<uint8_t>(from);
    }
    store(out + pos.at, best);
    write(positions + pos.at, found);
    write(chosen + pos.at, picked);
  }
};

/// g = gradient where there is a position, else 0.
template <class T, int kWidth>
struct WhereChosen {
  static constexpr int kAhead = 2;
  struct Ahead {
    Pack<T, kWidth> gradient;
    Pack<uint8_t, kWidth> positions;
  };
  const T* gradient;
  const uint8_t* positions;

  __device__ NoConstants constants(int64_t) const { return {}; }
  __device__ Ahead load(const RowPosition& pos) const {
    return {device::load<kWidth>(gradient + pos.at), device::load<kWidth>(positions + pos.at)};
  }
  __device__ Floats<kWidth> of(NoConstants, const RowPosition&, const Ahead& ahead, const Floats<kWidth>&) const {
    Floats<kWidth> g;
    for (int i = 0; i < kWidth; ++i)
      g.values[i] = ahead.positions.values[i] == Pool<T, kWidth>::kNoPosition ? 0 : wide(ahead.gradient.values[i]);
    return g;
  }
};

/// By pixel: each pixel checks the windows that contain it, at most two by two, so no two threads add to the same
/// value.
template <class T, int kWidth>
struct ThroughPool {
  static constexpr int kAhead = 1, kMaxWindows = 4;
  struct Ahead {
    Pack<T, kWidth> gradients[kMaxWindows];
    Pack<uint8_t, kWidth> positions[kMaxWindows];
    uint32_t mine[kMaxWindows];  ///< the pixel's position in the window; kNone, which matches none, without a window
  };
  const T* gradient;
  const uint8_t* positions;
  Windows windows;

  __device__ NoConstants constants(int64_t) const { return {}; }
  __device__ Ahead load(const RowPosition& pos) const {
    constexpr uint32_t kNone = 255;
    const auto pixel = static_cast<uint32_t>(pos.row);
    const uint32_t lines = pixel / windows.width, image = lines / windows.height, h = lines - image * windows.height,
                   w = pixel - lines * windows.width;
    Ahead ahead{};
    for (uint32_t i = 0; i < kMaxWindows; ++i) {
      // Windows begin one pixel before pixels 0, 2, 4, …: an even pixel is in one window, an odd pixel in two, except
      // at the end.
      const uint32_t p = (h + i / 2) / 2, q = (w + i % 2) / 2;
      const bool there = (i / 2 == 0 || (h % 2 == 1 && p < windows.pooled_height)) &&
                         (i % 2 == 0 || (w % 2 == 1 && q < windows.pooled_width));
      ahead.mine[i] = there ? (h + 1 - 2 * p) * 3 + w + 1 - 2 * q : kNone;
      if (!there) continue;
      const int64_t at =
          ((static_cast<int64_t>(image) * windows.pooled_height + p) * windows.pooled_width + q) * windows.channels +
          pos.channel;
      ahead.gradients[i] = device::load<kWidth>(gradient + at);
      ahead.positions[i] = device::load<kWidth>(positions + at);
    }
    return ahead;
  }
  __device__ Floats<kWidth> of(NoConstants, const RowPosition&, const Ahead& ahead, const Floats<kWidth>&) const {
    Floats<kWidth> g{};
    for (int window = 0; window < kMaxWindows; ++window)
      for (int i = 0; i < kWidth; ++i)
        g.values[i] +=
            ahead.positions[window].values[i] == ahead.mine[window] ? wide(ahead.gradients[window].values[i]) : 0;
    return g;
  }
};

// ---- launches ----

inline Windows windows_of(const Shape& x) {
  const Shape small = pooled(x);
  return {static_cast<uint32_t>(x.height), static_cast<uint32_t>(x.width), static_cast<uint32_t>(small.height),
          static_cast<uint32_t>(small.width), x.channels};
}

/// Calls with(sample type, Width<channels per access>).
template <class F>
auto by_type(const PoolOperands& o, const F& with) {
  return by_type(o.dtype, o.shape.channels,
                 {o.x, o.gradient, o.out, o.positions, o.positions_out, o.chosen_out, o.mean, o.scale, o.shift,
                  o.of_gradient, o.of_x, o.rest},
                 with);
}

class DevicePoolLaunches : public PoolLaunches {
 public:
  int64_t partials(const PoolOperands& o) const override {
    return by_type(
        o, [&](auto, auto width) { return tiling_of(o.shape.pixels(), o.shape.channels, width.value).partials(); });
  }

  void pool(const PoolOperands& o, void* queue) const override {
    by_type(o, [&](auto type, auto width) {
      using T = decltype(type);
      launch_map(Pool<T, width.value>{samples<T>(o.x),
                                      windows_of(o.shape),
                                      {o.scale, o.shift},
                                      static_cast<T*>(o.out),
                                      o.positions_out,
                                      static_cast<T*>(o.chosen_out)},
                 pooled(o.shape).pixels(), o.shape.channels, queue);
    });
  }

  void sums(const PoolOperands& o, void* queue) const override {
    by_type(o, [&](auto type, auto width) {
      using T = decltype(type);
      constexpr int kWidth = decltype(width)::value;
      const WhereChosen<T, kWidth> source{samples<T>(o.gradient), o.positions};
      launch_reduce(Sums<T, kWidth, WhereChosen<T, kWidth>>{source, samples<T>(o.x), o.mean}, ToSums{o.first, o.second},
                    o.shape.pixels(), o.shape.channels, o.partials, queue);
    });
  }

  void input_gradient(const PoolOperands& o, void* queue) const override {
    by_type(o, [&](auto type, auto width) {
      using T = decltype(type);
      constexpr int kWidth = decltype(width)::value;
      const ThroughPool<T, kWidth> source{samples<T>(o.gradient), o.positions, windows_of(o.shape)};
      launch_map(InputGradient<T, kWidth, ThroughPool<T, kWidth>>{source, samples<T>(o.x), o.of_gradient, o.of_x,
                                                                  o.rest, static_cast<T*>(o.out)},
                 o.shape.pixels(), o.shape.channels, queue);
    });
  }
};

}  // namespace
}  // namespace trainopt::kernels::device
