// Converts uint8 images to the input of a model in one kernel: look up by index, resize, crop, pad with black, mirror,
// scale and normalise by a table of the 256 levels, lay out. Include on_device.cuh or its host counterpart first.
#pragma once

#include "kernels/dtype.h"
#include "kernels/image_finish/launch.h"
#include "kernels/image_finish/placement_rows.h"
#include "kernels/image_finish/resize_bits.h"
#include "kernels/tiling.h"

#include <algorithm>

namespace trainopt::kernels::device {
namespace {

inline constexpr int kFinishThreads = 128;
/// Groups of pixels per thread, if there are enough: a block loads the table of levels once for all of them.
inline constexpr int kGroupsPerThread = 8;
/// The capacity of an H200, which a small batch should fill even if its threads then have fewer groups.
inline constexpr int kFullGrid = 2112;

/// Block b takes part b % parts of items b ÷ parts, b ÷ parts + slots, ….
struct FinishGrid {
  int64_t slots, parts;
  constexpr int64_t blocks() const { return slots * parts; }
};
/// `groups`: of an item.
constexpr FinishGrid finish_grid_of(int64_t items, int64_t groups) {
  const int64_t parts = divided_up(groups, int64_t{kFinishThreads} * kGroupsPerThread),
                per_item = divided_up(groups, kFinishThreads * parts),
                slots = divided_up(items, std::max<int64_t>(1, kGroupsPerThread / per_item));
  return {std::max(slots, std::min(items, divided_up(kFullGrid, parts))), parts};
}

/// The image of one item and the part of it to output.
struct FinishWindow {
  const uint8_t* image;
  int32_t box_top, box_left, box_height, box_width, top, left, valid_top, valid_bottom, valid_left, valid_right;
  bool flip;
};

__device__ inline FinishWindow window_of(const FinishOperands& o, int64_t item) {
  const auto number = [&](PlacementRow row) { return o.placement[row * o.items + item]; };
  const int64_t image = o.placement_rows > 0 ? number(kImage) : item;
  FinishWindow window{o.images + image * o.image_height * o.image_width * 3,
                      0,
                      0,
                      o.image_height,
                      o.image_width,
                      0,
                      0,
                      0,
                      o.height,
                      0,
                      o.width,
                      false};
  if (o.placement_rows < kWindowRows) return window;
  window.top = number(kTop), window.left = number(kLeft);
  window.valid_top = number(kValidTop), window.valid_bottom = number(kValidBottom);
  window.valid_left = number(kValidLeft), window.valid_right = number(kValidRight);
  window.flip = number(kFlip) != 0;
  if (o.placement_rows < kBoxRows) return window;
  window.box_top = number(kBoxTop), window.box_left = number(kBoxLeft), window.box_height = number(kBoxHeight),
  window.box_width = number(kBoxWidth);
  return window;
}

/// The bytes of adjacent pixels, three each.
template <int kPixels>
struct Pixels {
  static constexpr int kWords = (kPixels * 3 + 3) / 4;
  uint32_t words[kWords];

  __device__ uint32_t byte(int pixel, int channel) const {
    const int at = pixel * 3 + channel;
    return words[at / 4] >> (at % 4 * 8) & 255;
  }
  /// Drops the first byte of all words and appends one: after as many as fit, they are the bytes.
  __device__ void push(uint32_t byte) {
    for (int i = 0; i < kWords; ++i) words[i] = words_shifted(words[i], i + 1 < kWords ? words[i + 1] : byte, 8);
  }
};

/// The image without a resize. Eight or four pixels are read as words.
struct Plain {
  template <int kPixels>
  __device__ static Pixels<kPixels> at(const FinishOperands& o, const FinishWindow& window, int32_t y, int32_t x) {
    constexpr int kWords = Pixels<kPixels>::kWords, kWordBytes = 4;
    const bool in_y = y >= window.valid_top && y < window.valid_bottom;
    Pixels<kPixels> pixels{};
    if (in_y && x >= window.valid_left && x + kPixels <= window.valid_right) {
      const uint8_t* from = window.image + (static_cast<int64_t>(y) * o.image_width + x) * 3;
      const auto skipped = static_cast<unsigned>(reinterpret_cast<uintptr_t>(from) % kWordBytes);
      const auto* words = reinterpret_cast<const uint32_t*>(from - skipped);
      // Not at the ends of memory, where a word may have bytes that are not ours.
      if (from - o.images >= kWordBytes && o.images + o.image_bytes - from >= (kWords + 1) * kWordBytes) {
        uint32_t low = read_constant(words);
        for (int i = 0; i < kWords; ++i) {
          const uint32_t high = read_constant(words + i + 1);
          pixels.words[i] = words_shifted(low, high, skipped * 8);
          low = high;
        }
        return pixels;
      }
    }
    TRAINOPT_NO_UNROLL
    for (int32_t i = x; i < x + kPixels; ++i) {
      const bool shows = in_y && i >= window.valid_left && i < window.valid_right;
      const uint8_t* from = window.image + (static_cast<int64_t>(y) * o.image_width + i) * 3;
      for (int channel = 0; channel < 3; ++channel) pixels.push(shows ? read_constant(from + channel) : 0);
    }
    for (int i = kPixels * 3; i < kWords * kWordBytes; ++i) pixels.push(0);
    return pixels;
  }
};

/// The loader's resize (Pillow's): resizes rows of the source and rounds them to bytes, then resizes columns of the
/// result. Recomputed for every output pixel: at most twice the sums of two passes, three times for an enlargement,
/// with no memory in between.
struct Resized {
  __device__ static uint32_t rounded(int32_t sum) {
    const int32_t level = sum >> kResizeBits;
    return static_cast<uint32_t>(level < 255 ? level : 255);
  }
  template <int kPixels>
  __device__ static Pixels<kPixels> at(const FinishOperands& o, const FinishWindow& window, int32_t y, int32_t x) {
    static_assert(kPixels == 1, "one pixel is enough work for a thread");
    if (y < window.valid_top || y >= window.valid_bottom || x < window.valid_left || x >= window.valid_right) return {};
    const int64_t row = static_cast<int64_t>(window.box_height - o.rows.shortest) * o.rows.output + y,
                  column = static_cast<int64_t>(window.box_width - o.columns.shortest) * o.columns.output + x;
    const int32_t *down = o.rows.coefficients + row * o.rows.taps,
                  *across = o.columns.coefficients + column * o.columns.taps;
    const int32_t rows = o.rows.count[row], columns = o.columns.count[column];
    const uint8_t* line = window.image + (static_cast<int64_t>(window.box_top + o.rows.first[row]) * o.image_width +
                                          window.box_left + o.columns.first[column]) *
                                             3;
    constexpr int32_t kHalf = 1 << (kResizeBits - 1);
    int32_t sums[3] = {kHalf, kHalf, kHalf};
    for (int32_t i = 0; i < rows; ++i, line += o.image_width * 3) {
      int32_t of_row[3] = {kHalf, kHalf, kHalf};
      for (int32_t j = 0; j < columns; ++j)
        for (int channel = 0; channel < 3; ++channel) of_row[channel] += across[j] * line[j * 3 + channel];
      for (int channel = 0; channel < 3; ++channel)
        sums[channel] += down[i] * static_cast<int32_t>(rounded(of_row[channel]));
    }
    Pixels<1> pixel{};
    for (int channel = 0; channel < 3; ++channel) pixel.words[0] |= rounded(sums[channel]) << (channel * 8);
    return pixel;
  }
};

/// Level is an integer type of the output's size, since bits are only copied. A thread takes groups of kPixels adjacent
/// pixels of a row, whose width is a multiple of kPixels: three packs.
template <class Level, int kPixels, bool kInterleaved, class Source>
__global__ void __launch_bounds__(kFinishThreads, 8) finish(FinishOperands o, FinishGrid grid) {
  const int thread = static_cast<int>(threadIdx.x);
  Level* levels = shared_memory<Level, 3 * kLevels>();
  for (int i = thread; i < 3 * kLevels; i += kFinishThreads) levels[i] = static_cast<const Level*>(o.levels)[i];
  __syncthreads();
  const auto block = static_cast<uint32_t>(blockIdx.x), parts = static_cast<uint32_t>(grid.parts),
             in_row = static_cast<uint32_t>(o.width / kPixels), step = parts * kFinishThreads,
             first = block % parts * kFinishThreads + static_cast<uint32_t>(thread);
  const auto step_rows = static_cast<int32_t>(step / in_row),
             step_columns = static_cast<int32_t>(step % in_row) * kPixels,
             first_row = static_cast<int32_t>(first / in_row),
             first_column = static_cast<int32_t>(first % in_row) * kPixels;
  const int64_t plane = static_cast<int64_t>(o.height) * o.width;
  for (int64_t item = block / parts; item < o.items; item += grid.slots) {
    const FinishWindow window = window_of(o, item);
    Level* out = static_cast<Level*>(o.out) + item * 3 * plane;
    for (int32_t y = first_row, x = first_column; y < o.height;) {
      const auto pixels = Source::template at<kPixels>(o, window, window.top + y,
                                                       window.left + (window.flip ? o.width - kPixels - x : x));
      Level values[kPixels * 3];
      for (int i = 0; i < kPixels; ++i)
        for (int channel = 0; channel < 3; ++channel)
          values[i * 3 + channel] = levels[channel * kLevels + (window.flip ? pixels.byte(kPixels - 1 - i, channel)
                                                                            : pixels.byte(i, channel))];
      const int64_t at = static_cast<int64_t>(y) * o.width + x;
      for (int part = 0; part < 3; ++part) {
        Pack<Level, kPixels> pack;
        for (int i = 0; i < kPixels; ++i)
          pack.values[i] = kInterleaved ? values[part * kPixels + i] : values[i * 3 + part];
        write(out + (kInterleaved ? at * 3 + part * kPixels : part * plane + at), pack);
      }
      y += step_rows, x += step_columns;
      if (x >= o.width) x -= o.width, ++y;
    }
  }
}

template <class Level, int kPixels, class Source>
void launch_finish(const FinishOperands& o, void* queue) {
  if (o.items == 0) return;
  const FinishGrid grid = finish_grid_of(o.items, static_cast<int64_t>(o.height) * (o.width / kPixels));
  const auto run = [&](auto kernel) { launch(queue, grid.blocks(), kFinishThreads, kernel, o, grid); };
  o.interleaved ? run(finish<Level, kPixels, true, Source>) : run(finish<Level, kPixels, false, Source>);
}

template <class Level>
void launch_finish(const FinishOperands& o, void* queue) {
  if (o.resizes) return launch_finish<Level, 1, Resized>(o, queue);  // one pixel is enough work for a thread
  o.width % kPackWidth<Level> == 0 ? launch_finish<Level, kPackWidth<Level>, Plain>(o, queue)
                                   : launch_finish<Level, 1, Plain>(o, queue);
}

class DeviceFinishLaunches : public FinishLaunches {
 public:
  void finish(const FinishOperands& o, void* queue) const override {
    o.level_bytes == 2 ? launch_finish<uint16_t>(o, queue) : launch_finish<uint32_t>(o, queue);
  }
};

}  // namespace
}  // namespace trainopt::kernels::device
