// The part of the transforms that can move to the device: scaling and normalising always; a resize, and crops and flips
// behind it; behind what a data set that lies on the device has gone through once, all that is random.
#pragma once

#include "data/image_finish.h"
#include "data/placement.h"
#include "data/tensor_format.h"
#include "data/transform_config.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// Transforms as they are shared between the loader's threads and the device, in the recipe's order.
struct TransformSplit {
  std::vector<TransformConfig> host, device;
};
/// Without resize only the normalisation moves. With resize, the first resize and what follows it; see
/// device_resize_refusal().
TransformSplit split_transforms(const std::vector<TransformConfig>& transforms, bool resize);
/// What is the same in every epoch is done once, before the images are kept; the rest on the device. See
/// device_dataset_refusal().
TransformSplit split_for_device_dataset(const std::vector<TransformConfig>& transforms);

/// Why the resize cannot move, or nullopt.
std::optional<std::string> device_resize_refusal(const std::vector<TransformConfig>& transforms);
/// Why a data set that lies on the device cannot be trained on with these, or nullopt.
std::optional<std::string> device_dataset_refusal(const std::vector<TransformConfig>& transforms);

/// The device's part.
class DeviceTransforms {
 public:
  /// `input`: size of the images that arrive. `seed`: the run's. `result`: type (float32, bfloat16, float16) and layout
  /// of what comes out.
  DeviceTransforms(const TransformSplit& transforms, ImageSize input, uint64_t seed, c10::Device device,
                   const TensorFormat& result);

  /// Draws the batch's crops and flips: a placement on the device, undefined where there is nothing to say because the
  /// images are its own, whole and in order.
  at::Tensor place(const DrawnBatch& batch) const;
  /// uint8 [n, h, w, 3] on the device becomes [items, 3, h', w'] there, with the bits of the host's path (rounded once
  /// to 16 bits, if that is the type).
  at::Tensor operator()(const at::Tensor& images, const at::Tensor& placement) const;
  ImageSize output_size() const { return placer_.output_size(); }

 private:
  c10::Device device_;
  Placer placer_;
  kernels::ImageFinish finish_;
};

}  // namespace trainopt
