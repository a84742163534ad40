#include "kernels/image_finish/image_finish.h"
#include "kernels/image_finish/placement_rows.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

namespace trainopt::kernels {
namespace {

/// Copies the window of one image into the batch.
struct WindowPass {
  const uint8_t* image;
  int64_t image_width;
  Box window, shown;
  bool flip;

  /// Writes the level of value (y, x, channel) to out[y × row + x × column + channel × plane]. Level is an integer
  /// type, since bits are only copied.
  template <class Level>
  void run(const Level* levels, Level* out, int64_t row, int64_t column, int64_t plane) const {
    // Output columns [begin, end) show the image; its pixels are read forwards or backwards.
    const int64_t from_left = shown.left - window.left, from_right = window.right() - shown.right();
    const int64_t begin = flip ? from_right : from_left, end = begin + shown.width, step = flip ? -3 : 3;
    const int64_t first = flip ? shown.right() - 1 : shown.left;
    for (int64_t y = 0; y < window.height; ++y) {
      const int64_t source_row = window.top + y;
      const bool black = source_row < shown.top || source_row >= shown.bottom() || shown.width <= 0;
      const uint8_t* pixels = black ? nullptr : image + (source_row * image_width + first) * 3;
      for (int64_t channel = 0; channel < 3; ++channel) {
        const Level* level = levels + channel * kLevels;
        Level* to = out + y * row + channel * plane;
        int64_t x = 0;
        for (const int64_t stop = black ? window.width : begin; x < stop; ++x) to[x * column] = level[0];
        for (const uint8_t* pixel = pixels + channel; x < (black ? 0 : end); ++x, pixel += step)
          to[x * column] = level[*pixel];
        for (; x < window.width; ++x) to[x * column] = level[0];
      }
    }
  }
};

}  // namespace

at::Tensor ImageFinish::on_cpu(const at::Tensor& images, const at::Tensor& placement) const {
  check(images, placement);
  const at::Tensor batch = make_batch(images, placement);
  const int64_t items = batch.size(0), width = images.size(2), image_bytes = images.size(1) * width * 3;
  const auto [height_out, width_out] = result_.size;
  const int64_t pixels = height_out * width_out;
  const bool interleaved = result_.memory_format == at::MemoryFormat::ChannelsLast;
  const uint8_t* from = images.const_data_ptr<uint8_t>();
  const int32_t* numbers = placement.defined() ? placement.const_data_ptr<int32_t>() : nullptr;
  const bool full_image = !numbers || placement.size(0) == 1;
  const Box all{0, 0, height_out, width_out}, source{0, 0, images.size(1), width};
  at::parallel_for(0, items, std::max<int64_t>(1, 32768 / (3 * pixels)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto number = [&](PlacementRow row) { return int64_t{numbers[row * items + i]}; };
      WindowPass pass{from + (numbers ? number(kImage) : i) * image_bytes, width, all, all, false};
      if (!full_image) {
        pass.window.top = number(kTop), pass.window.left = number(kLeft), pass.flip = number(kFlip) != 0;
        pass.shown = {number(kValidTop), number(kValidLeft), number(kValidBottom) - number(kValidTop),
                      number(kValidRight) - number(kValidLeft)};
      }
      thread_local std::vector<uint8_t> resized;
      if (resize_) {
        resized.resize(static_cast<size_t>(pixels * 3));
        const Box box =
            resize_->boxed ? Box{number(kBoxTop), number(kBoxLeft), number(kBoxHeight), number(kBoxWidth)} : source;
        resize_->resizer->resize({.image = pass.image,
                                  .extent = resize_->from,
                                  .box = box,
                                  .resized = resize_->to,
                                  .window = pass.window,
                                  .shown = pass.shown,
                                  .flip = pass.flip},
                                 resized.data());
        pass = {resized.data(), width_out, all, all, false};
      }
      const auto run = [&](auto level) {
        using Level = decltype(level);
        pass.run(static_cast<const Level*>(levels_.const_data_ptr()),
                 static_cast<Level*>(batch.mutable_data_ptr()) + i * 3 * pixels, (interleaved ? 3 : 1) * width_out,
                 interleaved ? 3 : 1, interleaved ? 1 : pixels);
      };
      levels_.element_size() == 2 ? run(uint16_t()) : run(uint32_t());
    }
  });
  return batch;
}

}  // namespace trainopt::kernels
