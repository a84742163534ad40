// A small data set that lies on the device as it is before its random transforms: uint8, read once.
#pragma once

#include "data/loader.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <set>
#include <string>

namespace trainopt {

/// Bytes on the device: images of `size` and a label each.
int64_t resident_bytes(ImageSize size, int64_t samples);

/// Why `room` bytes, which are `whose` ("data.memory_limit"), are too few for them; null if they are not.
std::optional<std::string> why_no_room(ImageSize size, int64_t samples, int64_t room, const char* whose);

/// Loaded when first asked for and then kept for every source of batches that is opened after, so that a run which goes
/// a step back reads nothing again. For one thread.
class DeviceDataset {
 public:
  /// Takes all samples from `loader`, which gives each once, in index order and as uint8. Throws UserError for bad
  /// samples as the loader's policy has it, and where the device has no room.
  void load(Loader& loader, c10::Device device);
  bool loaded() const { return images_.defined(); }

  const at::Tensor& images() const { return images_; }  ///< uint8 [samples, height, width, 3]
  const at::Tensor& labels() const { return labels_; }  ///< int64 [samples]
  int64_t bytes() const { return static_cast<int64_t>(images_.nbytes() + labels_.nbytes()); }
  const std::set<int64_t>& unusable() const { return unusable_; }  ///< samples whose image is another's
  const std::vector<RefusedSample>& bad_samples() const {
    return bad_samples_;
  }  ///< the same with their reasons, and those the loader knew of before
  int64_t loading_threads() const { return loading_threads_; }

 private:
  at::Tensor images_, labels_;
  std::set<int64_t> unusable_;
  std::vector<RefusedSample> bad_samples_;
  int64_t loading_threads_ = 0;
};

}  // namespace trainopt
