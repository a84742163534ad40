// Image finishing as tensor operations.
#include "device/tensor.h"
#include "kernels/image_finish/image_finish.h"
#include "kernels/image_finish/placement_rows.h"
#include "kernels/image_finish/resize_bits.h"

#include <ATen/core/grad_mode.h>

namespace trainopt::kernels {
namespace {

/// Pixels of each item's window from uint8 [items, h, w, 3]: [items, height, width, 3].
at::Tensor cut_out(const at::Tensor& images, const at::Tensor& placement, Extent size) {
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

/// Resizes lines of `images`, uint8 [items, h, w, 3], along dimension `dim`: the length[i] samples of item i from
/// begin[i] on, rounded to bytes. `begin` and `length`: int64 [items], on the device of images and weights.
at::Tensor resize_lines(const at::Tensor& images, int64_t dim, const ResizeWeights& weights, const at::Tensor& begin,
                        const at::Tensor& length) {
  const int64_t items = images.size(0), output = weights.first.size(1), taps = weights.coefficients.size(2);
  const at::Tensor line = length - weights.shortest;
  const at::Tensor first = weights.first.index_select(0, line).to(at::kLong) + begin.view({items, 1});
  const at::Tensor coefficients = weights.coefficients.index_select(0, line);
  auto sizes = images.sizes().vec();
  sizes[static_cast<size_t>(dim)] = output;
  std::vector<int64_t> along{items, 1, 1, 1};
  along[static_cast<size_t>(dim)] = output;
  at::Tensor sums = at::full(sizes, 1 << (kResizeBits - 1), images.options().dtype(at::kInt));
  for (int64_t tap = 0; tap < taps; ++tap) {
    // Past the end the weight is zero.
    const at::Tensor from = (first + tap).clamp_max(images.size(dim) - 1).view(along).expand(sizes);
    sums += images.gather(dim, from).to(at::kInt) * coefficients.select(2, tap).contiguous().view(along);
  }
  return sums.bitwise_right_shift(kResizeBits).clamp_max(255).to(at::kByte);
}

}  // namespace

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

}  // namespace trainopt::kernels
