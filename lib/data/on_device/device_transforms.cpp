#include "data/on_device/device_transforms.h"

#include "base/error.h"
#include "data/image/pipeline.h"
#include "data/image/resample.h"
#include "data/image/resample_table.h"
#include "device/tensor.h"
#include "kernels/image_finish/resize_bits.h"

#include <algorithm>
#include <iterator>

namespace trainopt {
namespace {

template <class... Kinds>
bool is_one_of(const TransformConfig& transform) {
  return (std::holds_alternative<Kinds>(transform) || ...);
}
bool resizes(const TransformConfig& t) { return is_one_of<ResizeConfig, RandomResizedCropConfig>(t); }
bool is_random(const TransformConfig& t) {
  return is_one_of<RandomCropConfig, RandomResizedCropConfig, RandomHorizontalFlipConfig>(t);
}
bool normalizes(const TransformConfig& t) { return is_one_of<NormalizeConfig>(t); }

template <class Moves>
TransformSplit split_at(const std::vector<TransformConfig>& transforms, Moves moves) {
  const auto first = std::find_if(transforms.begin(), transforms.end(), moves);
  return {{transforms.begin(), first}, {first, transforms.end()}};
}

}  // namespace

TransformSplit split_transforms(const std::vector<TransformConfig>& transforms, bool resize) {
  return split_at(transforms, [&](const TransformConfig& t) { return normalizes(t) || (resize && resizes(t)); });
}

TransformSplit split_for_device_dataset(const std::vector<TransformConfig>& transforms) {
  return split_at(transforms, [](const TransformConfig& t) { return normalizes(t) || is_random(t); });
}

std::optional<std::string> device_resize_refusal(const std::vector<TransformConfig>& transforms) {
  const auto device = split_transforms(transforms, true).device;
  if (std::none_of(device.begin(), device.end(), resizes)) return "data.transforms has no resize to move to the device";
  if (std::count_if(device.begin(), device.end(), resizes) > 1) return "data.transforms resizes twice";
  return std::nullopt;
}

std::optional<std::string> device_dataset_refusal(const std::vector<TransformConfig>& transforms) {
  const auto device = split_for_device_dataset(transforms).device;
  if (!device.empty() && std::any_of(device.begin() + 1, device.end(), resizes))
    return "data.transforms resizes after a random transform; only the loader's threads can repeat such a resize in "
           "every epoch";
  return std::nullopt;
}

namespace {

std::vector<TransformConfig> all_but_normalize(const std::vector<TransformConfig>& transforms) {
  std::vector<TransformConfig> remaining;
  std::copy_if(transforms.begin(), transforms.end(), std::back_inserter(remaining),
               [](const auto& t) { return !normalizes(t); });
  return remaining;
}

}  // namespace

DeviceTransforms::DeviceTransforms(const TransformSplit& transforms, ImageSize input, uint64_t seed, c10::Device device,
                                   const TensorFormat& result)
    : device_(device),
      placer_(all_but_normalize(transforms.device), transforms.host.size(), input, seed),
      finish_(make_image_finish(placer_.resize(), Pipeline(transforms.device).normalization(),
                                {placer_.output_size(), result.compute_type, result.memory_format}, device)) {}

at::Tensor DeviceTransforms::make_placement(const DrawnBatch& batch) const {
  if (!placer_.needs_placement() && batch.in_order) return {};
  return placer_(batch, /*pinned=*/device_.is_cuda())
      .to(device_, /*non_blocking=*/true);  // the pinned-memory allocator waits for the copy
}

at::Tensor DeviceTransforms::operator()(const at::Tensor& images, const at::Tensor& placement) const {
  const at::NoGradGuard no_grad;
  return finish_(images, placement);
}

namespace {

static_assert(kResampleBits == kernels::kResizeBits);

kernels::Extent extent_of(const ImageSize& size) { return {size.height, size.width}; }
Rect rect_of(const kernels::Box& box) { return {box.top, box.left, box.height, box.width}; }

class LoaderResizer : public kernels::Resizer {
 public:
  kernels::ResizeWeights weights(int64_t shortest, int64_t longest, int64_t output) const override {
    std::vector<ResampleTable> tables;
    int64_t taps = 0;
    for (int64_t length = shortest; length <= longest; ++length) {
      tables.push_back(make_resample_table(length, output));
      taps = std::max(taps, tables.back().taps);
    }
    const auto lines = static_cast<int64_t>(tables.size());
    const at::Tensor first = at::empty({lines, output}, at::kInt), count = at::empty({lines, output}, at::kInt),
                     coefficients = at::zeros({lines, output, taps}, at::kInt);
    for (int64_t line = 0; line < lines; ++line) {
      const ResampleTable& table = tables[static_cast<size_t>(line)];
      std::copy(table.first.begin(), table.first.end(), first.mutable_data_ptr<int32_t>() + line * output);
      std::copy(table.count.begin(), table.count.end(), count.mutable_data_ptr<int32_t>() + line * output);
      for (int64_t i = 0; i < output; ++i)
        std::copy_n(table.coefficients.data() + i * table.taps, table.taps,
                    coefficients.mutable_data_ptr<int32_t>() + (line * output + i) * taps);
    }
    return {shortest, first, count, coefficients};
  }

  void resize(const kernels::ResizedWindow& w, uint8_t* out) const override {
    thread_local ResampleScratch scratch;
    const Stage stage{.source = rect_of(w.box),
                      .resized = {w.resized.height, w.resized.width},
                      .window = rect_of(w.window),
                      .valid = rect_of(w.shown),
                      .flip = w.flip};
    resample({{w.image, w.extent.height, w.extent.width, w.extent.width * 3}, 0, 0}, stage, {},
             {PixelFormat::u8_hwc, out, w.window.height, w.window.width}, scratch);
  }
};

}  // namespace

kernels::ImageFinish make_image_finish(const std::optional<ImageResize>& resize, const Normalization& normalization,
                                       const FinishedAs& result, c10::Device device) {
  std::optional<kernels::ImageFinish::Resize> resized;
  if (resize)
    resized = {extent_of(resize->from), extent_of(resize->to), resize->boxed, std::make_shared<LoaderResizer>()};
  return {resized,
          {normalization.mean, normalization.std},
          {extent_of(result.size), result.type, result.memory_format},
          device};
}

}  // namespace trainopt
