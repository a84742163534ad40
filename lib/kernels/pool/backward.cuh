// The backward passes of the max-pool: a source of g for norm's Sums, and a body of map(). Include on_device.cuh or its
// host counterpart first.
#pragma once

#include "kernels/pool/forward.cuh"

namespace trainopt::kernels::device {
namespace {

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
    auto g = widened(ahead.gradient);
    for (int i = 0; i < kWidth; ++i)
      if (ahead.positions.values[i] == kNoPosition) g.values[i] = 0;
    return g;
  }
};

/// A row is a quad of pixels, two by two: the centre, right, lower and lower right pixel of window (p, q). They are
/// also in the windows to the right, below, and to the lower right, and in no other.
template <class T, int kChannels>
struct PoolInputGradient {
  static constexpr int kWidth = kChannels, kAhead = 1, kQuad = 4;
  struct Ahead {
    Pack<T, kWidth> gradients[kQuad], x[kQuad];
    Pack<uint8_t, kWidth> positions[kQuad];
  };
  const T* gradient;
  const uint8_t* positions;
  const T* x;
  Windows windows;
  CombinationFrom by;
  T* out;

  __device__ Place window_of(const RowPosition& pos) const {
    return place_of(pos.row, windows.pooled_height, windows.pooled_width);
  }
  __device__ int64_t image_at(const Place& window, const RowPosition& pos) const {
    return window.image * windows.height * windows.width * windows.channels + pos.channel;
  }
  /// The offset of pixel `i` of the quad from image_at().
  __device__ uint32_t at(const Place& window, int i) const {
    return static_cast<uint32_t>(clamped(window.h * 2 + i / 2, windows.height) * windows.width +
                                 clamped(window.w * 2 + i % 2, windows.width)) *
           static_cast<uint32_t>(windows.channels);
  }

  __device__ Combination<kWidth> constants(int64_t channel) const { return by.at<kWidth>(channel); }
  __device__ Ahead load(const RowPosition& pos) const {
    const Place window = window_of(pos);
    const int64_t pooled_image =
        window.image * windows.pooled_height * windows.pooled_width * windows.channels + pos.channel;
    const T* image = x + image_at(window, pos);
    Ahead ahead;
    for (int i = 0; i < kQuad; ++i) {
      const uint32_t offset =
          static_cast<uint32_t>(clamped(window.h + i / 2, windows.pooled_height) * windows.pooled_width +
                                clamped(window.w + i % 2, windows.pooled_width)) *
          static_cast<uint32_t>(windows.channels);
      ahead.gradients[i] = device::load<kWidth>(gradient + pooled_image + offset);
      ahead.positions[i] = device::load<kWidth>(positions + pooled_image + offset);
      ahead.x[i] = device::load<kWidth>(image + at(window, i));
    }
    return ahead;
  }
  __device__ void use(const Combination<kWidth>& constants, const RowPosition& pos, const Ahead& ahead) const {
    const Place window = window_of(pos);
    const bool has_right = window.w + 1 < windows.pooled_width, has_below = window.h + 1 < windows.pooled_height;
    // The position of a pixel of the quad in each window; where there is no window, one that nothing matches.
    constexpr int kNone = 255;
    const int in_right = has_right ? 3 : kNone, low_in_right = has_right ? 6 : kNone, in_below = has_below ? 1 : kNone,
              right_in_below = has_below ? 2 : kNone, in_both = has_right && has_below ? 0 : kNone;
    Floats<kWidth> gradients[kQuad], values[kQuad], results[kQuad];
    for (int k = 0; k < kQuad; ++k) {
      gradients[k] = widened(ahead.gradients[k]);
      values[k] = widened(ahead.x[k]);
    }
    for (int i = 0; i < kWidth; ++i) {
      float g[kQuad]{};
      const auto add = [&](int pixel, int from, int position) {
        if (ahead.positions[from].values[i] == position) g[pixel] += gradients[from].values[i];
      };
      add(0, 0, 4), add(1, 0, 5), add(2, 0, 7), add(3, 0, 8);
      add(1, 1, in_right), add(3, 1, low_in_right);
      add(2, 2, in_below), add(3, 2, right_in_below);
      add(3, 3, in_both);
      for (int k = 0; k < kQuad; ++k) results[k].values[i] = constants.of(g[k], values[k].values[i], i);
    }
    T* image = out + image_at(window, pos);
    for (int k = 0; k < kQuad; ++k)
      if (window.h * 2 + k / 2 < windows.height && window.w * 2 + k % 2 < windows.width)
        store(image + at(window, k), results[k]);
  }
};

}  // namespace
}  // namespace trainopt::kernels::device
