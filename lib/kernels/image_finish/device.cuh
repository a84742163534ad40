// Converts uint8 images to the input of a model in one kernel: look up by index, resize, crop, pad with black, mirror,
// scale and normalise by a table of the 256 levels, lay out. Include on_device.cuh or its host counterpart first.
#pragma once

#include "kernels/dtype.h"
#include "kernels/image_finish/launch.h"
#include "kernels/image_finish/placement_rows.h"
#include "kernels/image_finish/resize_bits.h"

#include <algorithm>

namespace trainopt::kernels::device {
namespace {

/// Each block processes many pixels, so that the table of levels is loaded once for all of them. The number of blocks
/// is the capacity of an H200.
inline constexpr int kFinishThreads = 128, kMaxFinishBlocks = 2112;

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

struct Pixel {
  uint8_t of[3];
};

/// The image without a resize.
struct Plain {
  __device__ static Pixel at(const FinishOperands& o, const FinishWindow& window, int32_t y, int32_t x) {
    const uint8_t* pixel = window.image + (static_cast<int64_t>(y) * o.image_width + x) * 3;
    return {{pixel[0], pixel[1], pixel[2]}};
  }
};

/// The loader's resize (Pillow's): resizes rows of the source and rounds them to bytes, then resizes columns of the
/// result. Recomputed for every output pixel: at most twice the sums of two passes, three times for an enlargement,
/// with no memory in between.
struct Resized {
  __device__ static uint8_t rounded(int32_t sum) {
    const int32_t level = sum >> kResizeBits;
    return static_cast<uint8_t>(level < 255 ? level : 255);
  }
  __device__ static Pixel at(const FinishOperands& o, const FinishWindow& window, int32_t y, int32_t x) {
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
      for (int channel = 0; channel < 3; ++channel) sums[channel] += down[i] * rounded(of_row[channel]);
    }
    return {{rounded(sums[0]), rounded(sums[1]), rounded(sums[2])}};
  }
};

/// Level is an integer type of the output's size, since bits are only copied. A thread takes kPixels adjacent pixels of
/// a row, whose width is a multiple of kPixels: three packs.
template <class Level, int kPixels, class Source>
__global__ void __launch_bounds__(kFinishThreads) finish(FinishOperands o, int64_t blocks) {
  const int thread = static_cast<int>(threadIdx.x);
  Level* levels = shared_memory<Level, 3 * kLevels>();
  for (int i = thread; i < 3 * kLevels; i += kFinishThreads) levels[i] = static_cast<const Level*>(o.levels)[i];
  __syncthreads();
  const auto in_row = static_cast<uint32_t>(o.width / kPixels), in_image = in_row * static_cast<uint32_t>(o.height);
  for (int64_t group = static_cast<int64_t>(blockIdx.x) * kFinishThreads + thread; group < o.items * in_image;
       group += blocks * kFinishThreads) {
    const int64_t item = group / in_image;
    const auto inside = static_cast<uint32_t>(group - item * in_image), row = inside / in_row;
    const auto y = static_cast<int32_t>(row), x = static_cast<int32_t>(inside - row * in_row) * kPixels;
    const FinishWindow window = window_of(o, item);
    const int32_t from_y = window.top + y;
    const bool in_y = from_y >= window.valid_top && from_y < window.valid_bottom;
    Level values[kPixels * 3];
    for (int i = 0; i < kPixels; ++i) {
      const int32_t from_x = window.left + (window.flip ? o.width - 1 - x - i : x + i);
      const bool shows = in_y && from_x >= window.valid_left && from_x < window.valid_right;
      const Pixel pixel = shows ? Source::at(o, window, from_y, from_x) : Pixel{};
      for (int channel = 0; channel < 3; ++channel)
        values[i * 3 + channel] = levels[channel * kLevels + pixel.of[channel]];
    }
    Level* out = static_cast<Level*>(o.out);
    const int64_t plane = static_cast<int64_t>(o.height) * o.width, at = static_cast<int64_t>(y) * o.width + x;
    for (int part = 0; part < 3; ++part) {
      Pack<Level, kPixels> pack;
      for (int i = 0; i < kPixels; ++i)
        pack.values[i] = o.interleaved ? values[part * kPixels + i] : values[i * 3 + part];
      write(out + (o.interleaved ? (item * plane + at) * 3 + part * kPixels : (item * 3 + part) * plane + at), pack);
    }
  }
}

template <class Level, int kPixels, class Source>
void launch_finish(const FinishOperands& o, void* queue) {
  const int64_t groups = o.items * o.height * (o.width / kPixels),
                blocks = std::min<int64_t>((groups + kFinishThreads - 1) / kFinishThreads, kMaxFinishBlocks);
  if (blocks > 0) launch(queue, blocks, kFinishThreads, finish<Level, kPixels, Source>, o, blocks);
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
