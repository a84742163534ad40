// A small data set kept on the device as uint8, in its state before the random transforms; read once.
#pragma once

#include "data/batch_source.h"
#include "data/loader.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace trainopt {

/// Bytes on the device: an image of `size` and a label for each sample.
int64_t resident_bytes(ImageSize size, int64_t samples);

/// Why the data set does not fit into `available` bytes; null if it fits. `limit_name` names the limit:
/// "data.memory_limit".
std::optional<std::string> why_too_large(ImageSize size, int64_t samples, int64_t available, const char* limit_name);

/// Loaded on first use and then shared by all batch sources opened later, so that a run that goes back a step does not
/// read it again. Not thread-safe.
class DeviceDataset {
 public:
  /// Takes all samples from `loader`, which must deliver each once, in index order, as uint8. Throws UserError for bad
  /// samples according to the loader's policy, and if they do not fit on the device.
  void load(Loader& loader, c10::Device device);
  bool loaded() const { return images_.defined(); }

  const at::Tensor& images() const { return images_; }  ///< uint8 [samples, height, width, 3]
  const at::Tensor& labels() const { return labels_; }  ///< int64 [samples]
  int64_t bytes() const { return static_cast<int64_t>(images_.nbytes() + labels_.nbytes()); }
  const std::set<int64_t>& unusable() const { return unusable_; }  ///< samples in whose position a substitute is stored
  const std::vector<RefusedSample>& bad_samples() const {
    return bad_samples_;
  }  ///< those with their reasons, and those the loader already knew
  int64_t loading_threads() const { return loading_threads_; }

 private:
  at::Tensor images_, labels_;
  std::set<int64_t> unusable_;
  std::vector<RefusedSample> bad_samples_;
  int64_t loading_threads_ = 0;
};

// Batches drawn by index from a data set on the device: no loader runs during training and no images are copied.

/// Delivers bit for bit the batches that a loader would: same order, augmentation, substitutes, and division into
/// steps, micro-batches and ranks.
class DeviceDatasetBatches : public BatchSource {
 public:
  struct Order {
    BatchSchedule schedule;
    Sampler sampler;
    SampleKeys keys;
    int64_t first_step;
  };
  /// `loader` creates the loader that reads the images; the first next() calls it if they are not yet loaded.
  /// `refused`: bad samples that the run already knows.
  DeviceDatasetBatches(std::shared_ptr<DeviceDataset> images, std::function<std::unique_ptr<Loader>()> loader,
                       const Order& order, c10::Device device, DeviceTransforms transforms,
                       const std::vector<RefusedSample>& refused);

  Batch next() override;
  BatchSourceStats take_stats() override;
  std::vector<RefusedSample> bad_samples() const override;
  const BatchSchedule& schedule() const override { return order_.schedule; }

 private:
  void prepare();
  void note(const std::vector<RefusedSample>& refused);
  std::vector<int64_t> draw(const MicroBatch& where);

  std::shared_ptr<DeviceDataset> images_;
  std::function<std::unique_ptr<Loader>()> make_loader_;  ///< empty after the first batch
  Order order_;
  c10::Device device_;
  DeviceTransforms transforms_;
  int64_t sequence_, epoch_ = -1;  ///< epoch of epoch_order_
  EpochOrder epoch_order_;
  std::map<int64_t, RefusedSample> bad_samples_;
  BatchSourceStats stats_;
};

}  // namespace trainopt
