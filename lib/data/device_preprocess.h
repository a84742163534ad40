// The part of the transforms that can move to the device: scaling and normalising always, a resize where nothing random follows
// it.
#pragma once

#include "data/image/image.h"
#include "data/image/normalization.h"
#include "data/transform_config.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// Transforms as they are shared between the loader's threads and the device.
struct TransformSplit {
  std::vector<TransformConfig> host, device;
};
/// Without resize only the normalisation moves. With resize, the first resize and what follows it; see device_resize_refusal().
TransformSplit split_transforms(const std::vector<TransformConfig>& transforms, bool resize);

/// Why the resize cannot move, or nullopt.
std::optional<std::string> device_resize_refusal(const std::vector<TransformConfig>& transforms);

/// The device's part, as tensor operations.
class DevicePreprocess {
 public:
  /// `transforms`: TransformSplit::device. `input`: size of the images that arrive.
  DevicePreprocess(const std::vector<TransformConfig>& transforms, ImageSize input, c10::Device device,
                   at::MemoryFormat memory_format);

  /// uint8 [items, h, w, 3] on the device becomes float32 [items, 3, h', w'] there. Without a resize the bits are those of the
  /// host's path; with one, values differ from it by at most one grey level before normalising.
  at::Tensor operator()(const at::Tensor& images) const;
  ImageSize output_size() const { return output_size_; }

 private:
  struct Cut {
    int64_t top, left;
    ImageSize size;
  };
  std::optional<ImageSize> resized_;
  std::optional<Cut> cut_;
  ImageSize output_size_;
  at::MemoryFormat memory_format_;
  at::Tensor full_scale_, mean_, std_;  // on the device; mean and std undefined without normalisation
};

}  // namespace trainopt
