// Checks that every implementation of ImageFinish must pass, on any device: it is bit-identical to the tensor
// operations in every type, layout, resize and kind of placement.
#pragma once

#include "data/on_device/device_transforms.h"
#include "device/tensor.h"
#include "kernels/image_finish/placement_rows.h"
#include "support/catch.h"

#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace trainopt::test {

using kernels::ImageFinish;
using enum kernels::PlacementRow;

using Finish =
    std::function<at::Tensor(const ImageFinish& finish, const at::Tensor& images, const at::Tensor& placement)>;

inline const std::vector<at::ScalarType> kFinishTypes = {at::kFloat, at::kBFloat16, at::kHalf};
inline const std::vector<at::MemoryFormat> kFinishFormats = {at::MemoryFormat::Contiguous,
                                                             at::MemoryFormat::ChannelsLast};

/// The usual recipe's; none; results beyond float16's range; results beyond float32's range.
inline std::vector<Normalization> normalizations() {
  return {{{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}},
          {},
          {{1.5f, -3.0f, 0.5f}, {1e-5f, 1e-6f, 1e4f}},
          {{0.5f, 1e30f, 0.0f}, {1e-39f, 1e-20f, 1e38f}}};
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto bits = a.element_size() == 2 ? at::kShort : at::kInt;
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         a.contiguous().view(bits).equal(b.contiguous().view(bits));
}

/// `count` windows of `size` on random images. Some reach outside, some are wholly outside, and some have black parts
/// that the image would cover.
inline at::Tensor some_placement(int64_t images, ImageSize image, ImageSize size, int64_t count,
                                 const std::optional<ImageResize>& resize = std::nullopt) {
  const auto [height, width] = resize ? resize->to : image;
  at::Tensor placement = at::zeros({resize && resize->boxed ? kBoxRows : kWindowRows, count}, at::kInt);
  const auto draw = [&](int64_t from, int64_t to) { return at::randint(from, to + 1, {count}, at::kInt); };
  const at::Tensor top = draw(-size.height, height), left = draw(-size.width, width);
  placement[kImage] = draw(0, images - 1);
  placement[kTop] = top, placement[kLeft] = left, placement[kFlip] = draw(0, 1);
  placement[kValidTop] = top.clamp(0, height), placement[kValidLeft] = left.clamp(0, width);
  placement[kValidBottom] = (top + size.height - draw(0, 1)).clamp(0, height).max(placement[kValidTop]);
  placement[kValidRight] = (left + size.width - draw(0, 2)).clamp(0, width).max(placement[kValidLeft]);
  if (placement.size(0) == kWindowRows) return placement;
  placement[kBoxHeight] = draw(1, image.height), placement[kBoxWidth] = draw(1, image.width);
  placement[kBoxTop] = (at::rand({count}) * (image.height + 1 - placement[kBoxHeight])).floor().to(at::kInt);
  placement[kBoxLeft] = (at::rand({count}) * (image.width + 1 - placement[kBoxWidth])).floor().to(at::kInt);
  return placement;
}

/// Smaller, larger, one side only, to one pixel, by a large factor, and by a whole factor.
inline const std::vector<std::pair<ImageSize, ImageSize>> kResizes = {
    {{9, 8}, {5, 4}}, {{9, 8}, {18, 20}}, {{9, 8}, {9, 3}},   {{9, 8}, {13, 8}}, {{6, 7}, {1, 1}},
    {{1, 1}, {4, 8}}, {{53, 70}, {7, 9}}, {{12, 10}, {4, 5}}, {{3, 90}, {6, 4}}};

inline void check_finish(const Finish& run, at::Device device) {
  at::manual_seed(1);
  const auto agree = [&](const std::optional<ImageResize>& resize, const Normalization& normalization,
                         const FinishedAs& result, const at::Tensor& images, at::Tensor placement) {
    if (placement.defined()) placement = placement.to(device);
    const ImageFinish finish = make_image_finish(resize, normalization, result, device);
    const at::Tensor got = run(finish, images, placement), wanted = finish.reference(images, placement);
    REQUIRE(wanted.scalar_type() == result.type);
    REQUIRE(wanted.is_contiguous(result.memory_format));
    REQUIRE(got.is_contiguous(result.memory_format));
    CHECK(same_bits(got, wanted));
  };
  const auto images_of = [&](int64_t count, ImageSize size) {
    return at::randint(0, 256, {count, size.height, size.width, 3}, at::kByte).to(device);
  };
  const Normalization standard = normalizations().front();
  for (const auto type : kFinishTypes)
    for (const auto format : kFinishFormats) {
      for (const Normalization& normalization : normalizations()) {
        const ImageSize size{9, 8};
        const at::Tensor images = images_of(5, size);
        agree({}, normalization, {size, type, format}, images, {});
        agree({}, normalization, {size, type, format}, images, at::tensor({4, 0, 4}, at::kInt).view({1, 3}));
        agree({}, normalization, {size, type, format}, images, at::empty({kWindowRows, 0}, at::kInt));
        agree({}, normalization, {{6, 16}, type, format}, images, some_placement(5, size, {6, 16}, 60));
      }
      for (const ImageSize size : {ImageSize{1, 1}, {1, 13}, {7, 1}, {5, 4}, {3, 24}, {11, 10}})
        for (const int64_t count : {1, 7}) {
          const at::Tensor images = images_of(count, size);
          agree({}, standard, {size, type, format}, images, {});
          for (const ImageSize window : {ImageSize{1, 1}, {4, 8}, {6, 7}, {2, 20}})
            agree({}, standard, {window, type, format}, images, some_placement(count, size, window, 9));
        }
      for (const auto& [from, to] : kResizes)
        for (const int64_t count : {1, 5}) {
          const at::Tensor images = images_of(count, from);
          agree(ImageResize{from, to, false}, standard, {to, type, format}, images, {});
          agree(ImageResize{from, to, false}, standard, {to, type, format}, images, at::zeros({1, 2}, at::kInt));
          for (const bool boxed : {false, true})
            for (const ImageSize window : {to, ImageSize{3, 8}}) {
              const ImageResize resize{from, to, boxed};
              agree(resize, standard, {window, type, format}, images, some_placement(count, from, window, 11, resize));
            }
        }
    }
}

}  // namespace trainopt::test
