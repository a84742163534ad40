// The forward pass of the max-pool, as a body of map(). Include on_device.cuh or its host counterpart first.
#pragma once

#include "kernels/norm/bodies.cuh"

#include <cfloat>
#include <cmath>

namespace trainopt::kernels::device {
namespace {

/// Max-pool 3×3, stride 2, padding 1. Pixels outside an image are clamped to its edge and so read a pixel that the
/// window has anyway, but they never win.
struct Windows {
  int32_t height, width, pooled_height, pooled_width;
  int64_t channels;
};

/// An image and a place in it, for rows that count `height` × `width` places of each image.
struct Place {
  int64_t image;
  int32_t h, w;
};
__device__ inline Place place_of(int64_t row, int32_t height, int32_t width) {
  const auto at = static_cast<uint32_t>(row), lines = at / static_cast<uint32_t>(width),
             image = lines / static_cast<uint32_t>(height);
  return {image, static_cast<int32_t>(lines - image * static_cast<uint32_t>(height)),
          static_cast<int32_t>(at - lines * static_cast<uint32_t>(width))};
}

__device__ inline int32_t clamped(int32_t number, int32_t size) {
  return number < 0 ? 0 : number < size ? number : size - 1;
}

inline constexpr int kSide = 3, kNoPosition = kSide * kSide;

/// Per channel. `ordered`: z = scale · x + shift has the order of x or its reverse, and is NaN only where x is.
template <int kWidth>
struct PoolConstants {
  ScaleShift<kWidth> by;
  bool ordered;
};

/// A row is two windows, one below the other, which share a line of pixels. Windows are compared by the order of x, so
/// that z is computed once per window.
template <class T, int kChannels>
struct Pool {
  static constexpr int kWidth = kChannels, kAhead = 1, kLines = 5;
  struct Ahead {
    Pack<T, kWidth> pixels[kLines][kSide];
  };
  const T* x;
  Windows windows;
  ScaleShiftFrom scale_shift;
  T* out;
  uint8_t* positions;
  T* chosen;

  __device__ PoolConstants<kWidth> constants(int64_t channel) const {
    PoolConstants<kWidth> constants{scale_shift.at<kWidth>(channel), true};
    for (int i = 0; i < kWidth; ++i) {
      const float scale = fabsf(constants.by.scale.values[i]), shift = fabsf(constants.by.shift.values[i]);
      constants.ordered = constants.ordered && scale > 0 && scale <= FLT_MAX && shift <= FLT_MAX;
    }
    return constants;
  }

  /// `h`: of a pair of pooled lines.
  __device__ Place pair_of(const RowPosition& pos) const {
    return place_of(pos.row, (windows.pooled_height + 1) / 2, windows.pooled_width);
  }
  __device__ const T* image_of(const Place& pair, const RowPosition& pos) const {
    return x + pair.image * windows.height * windows.width * windows.channels + pos.channel;
  }
  __device__ uint32_t at(int32_t h, int32_t w) const {
    return static_cast<uint32_t>(clamped(h, windows.height) * windows.width + clamped(w, windows.width)) *
           static_cast<uint32_t>(windows.channels);
  }

  __device__ Ahead load(const RowPosition& pos) const {
    const Place pair = pair_of(pos);
    const T* image = image_of(pair, pos);
    Ahead ahead;
    for (int32_t line = 0; line < kLines; ++line)
      for (int32_t column = 0; column < kSide; ++column)
        ahead.pixels[line][column] = device::load<kWidth>(image + at(pair.h * 4 - 1 + line, pair.w * 2 - 1 + column));
    return ahead;
  }

  struct Best {
    float key;  ///< x, or −x where the scale is negative
    int position;
  };
  /// The first of equal keys. NaN wins. A side that is not `there` loses, unless it is NaN and `second`: then the
  /// window has that NaN elsewhere too.
  __device__ static Best better(const Best& first, bool first_there, const Best& second, bool second_there) {
    const bool wins = (second.key > first.key && second_there) || !first_there || second.key != second.key;
    return {wins ? second.key : first.key, wins ? second.position : first.position};
  }

  __device__ void use(const PoolConstants<kWidth>& constants, const RowPosition& pos, const Ahead& ahead) const {
    const Place pair = pair_of(pos);
    const bool has_left = pair.w > 0, has_right = pair.w * 2 + 1 < windows.width, has_top = pair.h > 0,
               has_bottom = pair.h * 4 + 1 < windows.height, has_second = pair.h * 2 + 1 < windows.pooled_height,
               has_end = pair.h * 4 + 3 < windows.height;
    Floats<kWidth> values[2], picked[2], pixels[kLines][kSide];
    for (int line = 0; line < kLines; ++line)
      for (int column = 0; column < kSide; ++column) pixels[line][column] = widened(ahead.pixels[line][column]);
    Pack<uint8_t, kWidth> found[2];
    for (int i = 0; i < kWidth; ++i) {
      const float scale = constants.by.scale.values[i];
      Best lines[kLines];
      for (int line = 0; line < kLines; ++line) {
        const auto pixel = [&](int column) {
          return Best{with_sign_of(scale, pixels[line][column].values[i]), column};
        };
        lines[line] = better(better(pixel(0), has_left, pixel(1), true), true, pixel(2), has_right);
      }
      for (int window = 0; window < 2; ++window) {
        Best middle = lines[2 * window + 1], bottom = lines[2 * window + 2];
        middle.position += kSide, bottom.position += 2 * kSide;
        const Best best = better(better(lines[2 * window], window == 1 || has_top, middle, true), true, bottom,
                                 window == 0 ? has_bottom : has_end);
        const float from = with_sign_of(scale, best.key), z = constants.by.of(from, i);
        values[window].values[i] = z <= 0 ? 0 : z;  // NaN stays NaN
        found[window].values[i] = static_cast<uint8_t>(z > 0 ? best.position : kNoPosition);
        picked[window].values[i] = from;
      }
    }
    for (int window = 0; window < 2; ++window) {
      if (window == 1 && !has_second) break;
      const int64_t to = out_at(pair, window, pos);
      store(out + to, values[window]);
      write(positions + to, found[window]);
      store(chosen + to, picked[window]);
    }
    if (!constants.ordered) compare_results(pair, has_second ? 2 : 1, pos);
  }

  __device__ int64_t out_at(const Place& pair, int window, const RowPosition& pos) const {
    return ((pair.image * windows.pooled_height + pair.h * 2 + window) * windows.pooled_width + pair.w) *
               windows.channels +
           pos.channel;
  }

  /// The windows again, by z instead of x, for scales and shifts that are zero, infinite or NaN.
  __device__ void compare_results(const Place& pair, int count, const RowPosition& pos) const {
    const T* image = image_of(pair, pos);
    TRAINOPT_NO_UNROLL
    for (int work = 0; work < count * kWidth; ++work) {
      const int window = work / kWidth, i = work % kWidth;
      const auto by = scale_shift.at<1>(pos.channel + i);
      float best = 0;
      int from = kNoPosition;
      T picked{};
      TRAINOPT_NO_UNROLL
      for (int position = 0; position < kNoPosition; ++position) {
        const int32_t h = pair.h * 4 + 2 * window - 1 + position / kSide, w = pair.w * 2 - 1 + position % kSide;
        if (h != clamped(h, windows.height) || w != clamped(w, windows.width)) continue;
        const T pixel = image[at(h, w) + static_cast<uint32_t>(i)];
        const float z = by.of(wide(pixel), 0);
        if (!(z > best) && z == z) continue;
        best = z, from = position, picked = pixel;
        if (z != z) break;
      }
      const int64_t to = out_at(pair, window, pos) + i;
      narrow(best, out[to]);
      positions[to] = static_cast<uint8_t>(from);
      chosen[to] = picked;
    }
  }
};

}  // namespace
}  // namespace trainopt::kernels::device
