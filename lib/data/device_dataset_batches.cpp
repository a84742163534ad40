#include "data/device_dataset_batches.h"

#include "base/clock.h"
#include "device/device.h"
#include "device/tensor.h"
#include "device/trace_range.h"
#include "kernels/image_finish/placement_rows.h"

namespace trainopt {

DeviceDatasetBatches::DeviceDatasetBatches(std::shared_ptr<DeviceDataset> images,
                                           std::function<std::unique_ptr<Loader>()> loader, const Order& order,
                                           c10::Device device, DeviceTransforms transforms,
                                           const std::vector<RefusedSample>& refused)
    : images_(std::move(images)),
      make_loader_(std::move(loader)),
      order_(order),
      device_(with_index(device)),
      transforms_(std::move(transforms)),
      sequence_(order.schedule.sequence_of(order.first_step)) {
  note(refused);
}

void DeviceDatasetBatches::note(const std::vector<RefusedSample>& refused) {
  for (const auto& one : refused) bad_samples_.emplace(one.sample, one);
}

void DeviceDatasetBatches::prepare() {
  if (!images_->loaded()) {
    const auto loader = make_loader_();
    try {
      images_->load(*loader, device_);
    } catch (...) {
      note(loader->samples().bad_samples());  // so that bad_samples() still reports them
      throw;
    }
  }
  make_loader_ = nullptr;
  note(images_->bad_samples());
}

std::vector<int64_t> DeviceDatasetBatches::draw(const MicroBatch& where) {
  if (epoch_ != where.epoch) {
    epoch_order_ = order_.sampler.order(where.epoch);
    epoch_ = where.epoch;
  }
  std::vector<int64_t> samples(static_cast<size_t>(where.items));
  for (int64_t i = 0; i < where.items; ++i) {
    const int64_t position = where.first + i;
    int64_t& sample = samples[static_cast<size_t>(i)];
    sample = epoch_order_(position);
    if (!images_->unusable().contains(sample)) continue;
    PhiloxStream substitutes = order_.keys.substitutes(where.epoch, position);
    while (images_->unusable().contains(sample))
      sample = static_cast<int64_t>(substitutes.next_below(static_cast<uint64_t>(order_.sampler.size())));
  }
  return samples;
}

Batch DeviceDatasetBatches::next() {
  const TraceRange range("loader::transforms");
  const auto begin = Clock::now();
  if (make_loader_) prepare();
  const MicroBatch where = order_.schedule.at_sequence(sequence_++);
  std::vector<int64_t> samples = draw(where);
  const at::Tensor placement =
      transforms_.make_placement({.epoch = where.epoch, .samples = samples, .in_order = false});
  const auto bytes = static_cast<int64_t>(placement.nbytes());
  stats_.bytes_delivered += bytes;
  if (!device_.is_cpu()) stats_.bytes_copied += bytes, stats_.pinned_bytes_copied += bytes;
  Batch batch = make_batch(where, transforms_(images_->images(), placement),
                           images_->labels().index_select(0, placement[kernels::kImage]), std::move(samples));
  stats_.finished_type = batch.input.scalar_type();
  stats_.data_wait_ms += milliseconds_between(begin, Clock::now());
  return batch;
}

BatchSourceStats DeviceDatasetBatches::take_stats() {
  stats_.threads = images_->loading_threads();
  stats_.thread_starts = stats_.threads > 0 ? 1 : 0;
  stats_.resident_bytes = images_->loaded() ? images_->bytes() : 0;
  return std::exchange(stats_, {});
}

std::vector<RefusedSample> DeviceDatasetBatches::bad_samples() const {
  std::vector<RefusedSample> all;
  for (const auto& [sample, refused] : bad_samples_) all.push_back(refused);
  return all;
}

}  // namespace trainopt
