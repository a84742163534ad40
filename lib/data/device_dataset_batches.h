// Batches drawn by index from a data set on the device: no loader runs during training and no images are copied.
#pragma once

#include "data/batch_source.h"
#include "data/device_dataset.h"

#include <functional>
#include <map>

namespace trainopt {

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
