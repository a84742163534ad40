#include "data/image_finish.h"

#include "base/error.h"
#include "data/image/resample.h"
#include "kernels/tensors.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <limits>

namespace trainopt {
namespace {

constexpr int64_t kLevels = 256;

/// Pixels of each item's window from uint8 [items, h, w, 3]: [items, height, width, 3].
at::Tensor cut_out(const at::Tensor& images, const at::Tensor& placement, ImageSize size) {
  const int64_t items = placement.size(1), height = images.size(1), width = images.size(2);
  const auto column = [&](PlacementRow row) { return placement[row].to(at::kLong).view({items, 1}); };
  const auto counted_to = [&](int64_t end) {
    return at::arange(end, placement.options().dtype(at::kLong)).view({1, end});
  };
  const at::Tensor along = counted_to(size.width);
  const at::Tensor y = counted_to(size.height) + column(kTop);
  const at::Tensor x = at::where(column(kFlip) != 0, size.width - 1 - along, along) + column(kLeft);
  const at::Tensor in_y = (y >= column(kValidTop)).logical_and(y < column(kValidBottom));
  const at::Tensor in_x = (x >= column(kValidLeft)).logical_and(x < column(kValidRight));
  const at::Tensor row =
      at::arange(items, y.options()).view({items, 1}) * height + y.clamp(0, height - 1);  // [items, h']
  const at::Tensor pixel =
      row.view({items, size.height, 1}) * width + x.clamp(0, width - 1).view({items, 1, size.width});
  const at::Tensor pixels =
      images.view({-1, 3}).index_select(0, pixel.view({-1})).view({items, size.height, size.width, 3});
  return pixels * in_y.view({items, size.height, 1, 1}) *
         in_x.view({items, 1, size.width, 1});  // uint8 × bool stays uint8
}

/// One image's window on its way to its place in the batch.
struct WindowPass {
  const uint8_t* image;
  int64_t image_width;
  Rect window, shown;
  bool flip;

  /// What `levels` has for value (y, x, channel) goes to out[y × row + x × column + channel × plane]. Level: an
  /// integer, since bits are only carried.
  template <class Level>
  void run(const Level* levels, Level* out, int64_t row, int64_t column, int64_t plane) const {
    // Of the output's columns those from `begin` to `end` show the image; its pixels are walked forwards or backwards.
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

ImageFinish::ImageFinish(const std::optional<ImageResize>& resize, const Normalization& normalization,
                         const Result& result, c10::Device device)
    : resize_(resize), result_(result) {
  const auto options = at::TensorOptions().dtype(at::kFloat).device(device);
  // A tensor on the device, not a number: CUDA divides by a host number as a multiplication with its inverse, which has
  // other bits.
  full_scale_ = at::full({1}, 255.0f, options);
  const Normalization nothing;
  if (normalization.mean != nothing.mean || normalization.std != nothing.std) {
    const auto by_channel = [&](const std::array<float, 3>& values) {
      return at::tensor(at::ArrayRef<float>(values.data(), 3)).to(options).view({1, 3, 1, 1});
    };
    mean_ = by_channel(normalization.mean), std_ = by_channel(normalization.std);
  }
  const at::Tensor levels = at::empty({3, kLevels}, at::kFloat);
  for (int channel = 0; channel < 3; ++channel)
    for (int value = 0; value < kLevels; ++value)
      levels.mutable_data_ptr<float>()[channel * kLevels + value] =
          normalization.apply(static_cast<uint8_t>(value), channel);
  levels_ = levels.to(result.type);
  levels_on_device_ = levels_.to(device);
  if (resize_ && !device.is_cpu()) weights_ = make_weights(device);
}

/// Of all the lengths that a box may have, or of whole images.
ImageFinish::Weights ImageFinish::make_weights(c10::Device device) const {
  const auto of = [&](int64_t from, int64_t to) {
    return make_resize_weights(resize_->boxed ? 1 : from, from, to, device);
  };
  return {of(resize_->from.height, resize_->to.height), of(resize_->from.width, resize_->to.width)};
}

void ImageFinish::check(const at::Tensor& images, const at::Tensor& placement) const {
  TRAINOPT_CHECK(images.device() == levels_on_device_.device() && images.is_contiguous() &&
                 images.scalar_type() == at::kByte && images.dim() == 4 && images.size(3) == 3);
  if (placement.defined()) {
    TRAINOPT_CHECK(placement.device() == images.device() && placement.is_contiguous() &&
                   placement.scalar_type() == at::kInt && placement.dim() == 2);
    TRAINOPT_CHECK(placement.size(0) == 1 || placement.size(0) == (resize_ && resize_->boxed ? kBoxRows : kWindowRows));
  }
  const ImageSize size{images.size(1), images.size(2)};
  if (resize_) TRAINOPT_CHECK(size == resize_->from);
  const bool whole = !placement.defined() || placement.size(0) == 1;
  TRAINOPT_CHECK(!whole || ((resize_ ? resize_->to : size) == result_.size && !(resize_ && resize_->boxed)));
}

at::Tensor ImageFinish::make_batch(const at::Tensor& images, const at::Tensor& placement) const {
  return at::empty(
      {placement.defined() ? placement.size(1) : images.size(0), 3, result_.size.height, result_.size.width},
      levels_on_device_.options(), result_.memory_format);
}

at::Tensor ImageFinish::operator()(const at::Tensor& images, const at::Tensor& placement) const {
  if (images.is_cpu()) return one_pass(images, placement);
  static const kernels::FinishKernel kernel = kernels::finish_on_cuda();
  return images.is_cuda() && kernel ? by_kernel(kernel, images, placement) : reference(images, placement);
}

/// Each item's image, resized: uint8 [items, height, width, 3].
at::Tensor ImageFinish::resized(const at::Tensor& images, const at::Tensor& placement) const {
  const at::Tensor chosen = placement.defined() ? images.index_select(0, placement[kImage]) : images;
  if (!resize_) return chosen;
  const auto [rows, columns] = weights();
  const auto numbers = [&](PlacementRow row, int64_t of_whole) {
    return resize_->boxed ? placement[row].to(at::kLong)
                          : at::full({chosen.size(0)}, of_whole, chosen.options().dtype(at::kLong));
  };
  const at::Tensor narrowed =
      resize_lines(chosen, 2, columns, numbers(kBoxLeft, 0), numbers(kBoxWidth, resize_->from.width));
  return resize_lines(narrowed, 1, rows, numbers(kBoxTop, 0), numbers(kBoxHeight, resize_->from.height));
}

at::Tensor ImageFinish::reference(const at::Tensor& images, const at::Tensor& placement) const {
  check(images, placement);
  const at::NoGradGuard no_grad;
  at::Tensor pixels = resized(images, placement);
  if (placement.defined() && placement.size(0) > 1) pixels = cut_out(pixels, placement, result_.size);
  pixels = pixels.permute({0, 3, 1, 2});
  at::Tensor scaled = at::empty(pixels.sizes(), full_scale_.options(), result_.memory_format);
  at::div_out(scaled, pixels, full_scale_);
  if (mean_.defined()) scaled.sub_(mean_).div_(std_);
  return scaled.to(result_.type);
}

at::Tensor ImageFinish::by_kernel(kernels::FinishKernel kernel, const at::Tensor& images,
                                  const at::Tensor& placement) const {
  check(images, placement);
  const auto narrow = [](int64_t number) {
    TRAINOPT_CHECK(number <= std::numeric_limits<int32_t>::max());
    return static_cast<int32_t>(number);
  };
  narrow(images.size(1) * images.size(2));
  narrow(result_.size.height * result_.size.width);
  const at::Tensor batch = make_batch(images, placement);
  const c10::DeviceGuard guard(images.device());
  const Weights used = resize_ ? weights() : Weights{};  // on a GPU those that stay
  const auto lines = [&](const ResizeWeights& weights) {
    if (!resize_) return kernels::ResizedLines{};
    return kernels::ResizedLines{.first = weights.first.const_data_ptr<int32_t>(),
                              .count = weights.count.const_data_ptr<int32_t>(),
                              .coefficients = weights.coefficients.const_data_ptr<int32_t>(),
                              .shortest = narrow(weights.shortest),
                              .output = narrow(weights.first.size(1)),
                              .taps = narrow(weights.coefficients.size(2))};
  };
  kernel({.images = images.const_data_ptr<uint8_t>(),
          .image_height = narrow(images.size(1)),
          .image_width = narrow(images.size(2)),
          .placement = placement.defined() ? placement.const_data_ptr<int32_t>() : nullptr,
          .placement_rows = placement.defined() ? placement.size(0) : 0,
          .resizes = resize_.has_value(),
          .rows = lines(used.rows),
          .columns = lines(used.columns),
          .items = batch.size(0),
          .height = narrow(result_.size.height),
          .width = narrow(result_.size.width),
          .levels = levels_on_device_.const_data_ptr(),
          .level_bytes = static_cast<int>(levels_.element_size()),
          .interleaved = result_.memory_format == at::MemoryFormat::ChannelsLast,
          .out = batch.mutable_data_ptr()},
         kernels::queue_of(images.device()));
  return batch;
}

at::Tensor ImageFinish::one_pass(const at::Tensor& images, const at::Tensor& placement) const {
  check(images, placement);
  const at::Tensor batch = make_batch(images, placement);
  const int64_t items = batch.size(0), width = images.size(2), image_bytes = images.size(1) * width * 3;
  const auto [height_out, width_out] = result_.size;
  const int64_t pixels = height_out * width_out;
  const bool interleaved = result_.memory_format == at::MemoryFormat::ChannelsLast;
  const uint8_t* from = images.const_data_ptr<uint8_t>();
  const int32_t* numbers = placement.defined() ? placement.const_data_ptr<int32_t>() : nullptr;
  const bool whole = !numbers || placement.size(0) == 1;
  const Rect all{0, 0, height_out, width_out}, source{0, 0, images.size(1), width};
  at::parallel_for(0, items, std::max<int64_t>(1, 32768 / (3 * pixels)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto number = [&](PlacementRow row) { return int64_t{numbers[row * items + i]}; };
      WindowPass pass{from + (numbers ? number(kImage) : i) * image_bytes, width, all, all, false};
      if (!whole) {
        pass.window.top = number(kTop), pass.window.left = number(kLeft), pass.flip = number(kFlip) != 0;
        pass.shown = {number(kValidTop), number(kValidLeft), number(kValidBottom) - number(kValidTop),
                      number(kValidRight) - number(kValidLeft)};
      }
      thread_local ResampleScratch scratch;
      thread_local std::vector<uint8_t> resized;
      if (resize_) {
        resized.resize(static_cast<size_t>(pixels * 3));
        const Rect box =
            resize_->boxed ? Rect{number(kBoxTop), number(kBoxLeft), number(kBoxHeight), number(kBoxWidth)} : source;
        resample({{pass.image, source.height, source.width, source.width * 3}, 0, 0},
                 {box, resize_->to, pass.window, pass.shown, pass.flip}, {},
                 {PixelFormat::u8_hwc, resized.data(), height_out, width_out}, scratch);
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

}  // namespace trainopt
