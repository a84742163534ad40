#include "data/device_transforms.h"

#include "base/error.h"
#include "data/image/pipeline.h"
#include "device/tensor.h"

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

}  // namespace trainopt
