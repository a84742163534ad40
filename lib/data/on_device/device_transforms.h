// The transforms that can run on the device: always scaling and normalising; on request the resize with the crops and
// flips after it; for a data set kept on the device, everything from the first random transform on.
#pragma once

#include "data/batch.h"
#include "data/image/image.h"
#include "data/image/normalization.h"
#include "data/placement.h"
#include "data/transform_config.h"
#include "kernels/image_finish/image_finish.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt {

// Creates kernels::ImageFinish with the loader's sizes, normalisation and resize.

struct FinishedAs {
  ImageSize size;
  at::ScalarType type = at::kFloat;
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;
};

/// `resize`: null if images keep their size.
kernels::ImageFinish make_image_finish(const std::optional<ImageResize>& resize, const Normalization& normalization,
                                       const FinishedAs& result, c10::Device device);

/// Transforms divided between the loader's threads and the device, in the recipe's order.
struct TransformSplit {
  std::vector<TransformConfig> host, device;
};
/// Without `resize`, only the normalisation moves to the device; with it, the first resize and all transforms after it.
/// See device_resize_refusal().
TransformSplit split_transforms(const std::vector<TransformConfig>& transforms, bool resize);
/// Transforms that are the same in every epoch are applied once, before the images are stored; the rest run on the
/// device. See device_dataset_refusal().
TransformSplit split_for_device_dataset(const std::vector<TransformConfig>& transforms);

/// Why the resize cannot run on the device, or nullopt if it can.
std::optional<std::string> device_resize_refusal(const std::vector<TransformConfig>& transforms);
/// Why these transforms cannot be used with a data set kept on the device, or nullopt if they can.
std::optional<std::string> device_dataset_refusal(const std::vector<TransformConfig>& transforms);

/// Applies the device's part of the transforms.
class DeviceTransforms {
 public:
  /// `input`: size of the input images. `seed`: the run's. `result`: type (float32, bfloat16, float16) and layout of
  /// the output.
  DeviceTransforms(const TransformSplit& transforms, ImageSize input, uint64_t seed, c10::Device device,
                   const TensorFormat& result);

  /// Draws the batch's crops and flips. Returns the placement on the device; undefined if none is needed because the
  /// images are the batch's own, uncropped and in order.
  at::Tensor make_placement(const DrawnBatch& batch) const;
  /// Turns uint8 [n, h, w, 3] into [items, 3, h', w'] on the device, bit-identical to the host's path (rounded once for
  /// a 16-bit type).
  at::Tensor operator()(const at::Tensor& images, const at::Tensor& placement) const;
  ImageSize output_size() const { return placer_.output_size(); }

 private:
  c10::Device device_;
  Placer placer_;
  kernels::ImageFinish finish_;
};

}  // namespace trainopt
