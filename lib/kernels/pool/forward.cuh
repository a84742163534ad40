// The forward pass of the max-pool, as a body of map(). Include on_device.cuh or its host counterpart first.
#pragma once

#include "kernels/norm/bodies.cuh"

#include <cfloat>
#include <cmath>

namespace trainopt::kernels::device {
namespace {

/// Max-pool 3×3, stride 2, padding 1. Pixels outside an image are clamped to its edge, which is the window's middle
/// line or column: a window there reads some of its pixels twice.
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

/// Whether scale · x + shift has the order of x or its reverse, and is NaN only where x is, in a thread's channels.
struct PoolConstants {
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

  __device__ PoolConstants constants(int64_t channel) const {
    const auto by = scale_shift.at<kWidth>(channel);
    bool ordered = true;
    for (int i = 0; i < kWidth; ++i) {
      const float scale = fabsf(by.scale.values[i]), shift = fabsf(by.shift.values[i]);
      ordered = ordered && scale > 0 && scale <= FLT_MAX && shift <= FLT_MAX;
    }
    return {ordered};
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
    float key;  ///< x, or −x where the scale is negative; finite
    int position;
    __device__ Best lower(int positions) const { return {key, position + positions}; }
  };
  /// The first of equal keys.
  __device__ static Best better(const Best& first, const Best& second) {
    const bool wins = second.key > first.key;
    return {wins ? second.key : first.key, wins ? second.position : first.position};
  }

  __device__ void use(const PoolConstants& constants, const RowPosition& pos, const Ahead& ahead) const {
    const Place pair = pair_of(pos);
    // Positions of the first column and line: at the left and upper edge they are copies of the middle ones.
    const int left = clamped(pair.w * 2 - 1, windows.width) - (pair.w * 2 - 1),
              above = (clamped(pair.h * 4 - 1, windows.height) - (pair.h * 4 - 1)) * kSide;
    const bool has_second = pair.h * 2 + 1 < windows.pooled_height;
    Floats<kWidth> values[2], picked[2], pixels[kLines][kSide];
    for (int line = 0; line < kLines; ++line)
      for (int column = 0; column < kSide; ++column) pixels[line][column] = widened(ahead.pixels[line][column]);
    Pack<uint8_t, kWidth> found[2];
    // From the cache for each row: there are no registers to keep them in.
    const auto by = scale_shift.at<kWidth>(pos.channel);
    float zero = 0;  // becomes NaN if any pixel is infinite or NaN
    for (int i = 0; i < kWidth; ++i) {
      const float sign = with_sign_of(by.scale.values[i], 1);
      float zero_here = 0;
      const auto best_of = [&](int line) {
        const auto pixel = [&](int column, int position) {
          const float key = sign * pixels[line][column].values[i];
          zero_here = fmaf(key, 0.0f, zero_here);
          return Best{key, position};
        };
        return better(better(pixel(0, left), pixel(1, 1)), pixel(2, 2));
      };
      Best top = best_of(0).lower(above);
      for (int window = 0; window < 2; ++window) {
        const Best middle = best_of(2 * window + 1), bottom = best_of(2 * window + 2),
                   best = better(better(top, middle.lower(kSide)), bottom.lower(2 * kSide));
        const float from = sign * best.key, z = by.of(from, i);
        values[window].values[i] = z <= 0 ? 0 : z;
        found[window].values[i] = static_cast<uint8_t>(z > 0 ? best.position : kNoPosition);
        picked[window].values[i] = from;
        top = bottom;
      }
      zero += zero_here;
    }
    const int64_t to = out_at(pair, 0, pos), line = windows.pooled_width * windows.channels;
    store(out + to, values[0]);
    write(positions + to, found[0]);
    store(chosen + to, picked[0]);
    if (has_second) {
      store(out + to + line, values[1]);
      write(positions + to + line, found[1]);
      store(chosen + to + line, picked[1]);
    }
    if (!constants.ordered || zero != 0) compare_results(pair, has_second ? 2 : 1, pos);
  }

  __device__ int64_t out_at(const Place& pair, int window, const RowPosition& pos) const {
    return ((pair.image * windows.pooled_height + pair.h * 2 + window) * windows.pooled_width + pair.w) *
               windows.channels +
           pos.channel;
  }

  /// The windows again, by z instead of x: for a scale or shift that is zero, infinite or NaN, and for pixels that are
  /// infinite or NaN.
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
