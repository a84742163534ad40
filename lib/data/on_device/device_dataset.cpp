#include "data/on_device/device_dataset.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "device/device.h"
#include "device/memory.h"
#include "device/tensor.h"
#include "device/trace_range.h"
#include "kernels/image_finish/placement_rows.h"

#include <limits>

namespace trainopt {

int64_t resident_bytes(ImageSize size, int64_t samples) {
  int64_t bytes = 0;
  return __builtin_mul_overflow(samples, size.height * size.width * 3 + static_cast<int64_t>(sizeof(int64_t)), &bytes)
             ? std::numeric_limits<int64_t>::max()
             : bytes;
}

std::optional<std::string> why_too_large(ImageSize size, int64_t samples, int64_t available, const char* limit_name) {
  const int64_t needed = resident_bytes(size, samples);
  if (needed <= available) return std::nullopt;
  return fmt::format(
      "data.cache: device does not fit; remove it or add a resize to smaller images: {} of {}×{}×3 are {}, {} is {}",
      counted(samples, "sample"), size.height, size.width, human_bytes(static_cast<double>(needed)), limit_name,
      human_bytes(static_cast<double>(available)));
}

void DeviceDataset::load(Loader& loader, c10::Device device) {
  const auto begin = Clock::now();
  const ImageSize size = loader.format().size;
  const int64_t samples = loader.samples().dataset().size();
  if (const auto free = free_memory_bytes(device))
    if (const auto reason = why_too_large(size, samples, *free, "the device's free memory"))
      throw UserError(*reason, ExitCode::memory);
  const at::NoGradGuard no_grad;
  at::Tensor images, labels;
  try {
    images = at::empty({samples, size.height, size.width, 3}, at::TensorOptions(device).dtype(at::kByte));
    labels = at::empty({samples}, at::TensorOptions(device).dtype(at::kLong));
  } catch (const std::exception& error) {  // the usual recovery, smaller micro-batches, would not help
    if (!is_out_of_memory(error)) throw;
    throw UserError(
        fmt::format("data.cache: device: cannot allocate {} of {}, {}; remove it or add a resize to smaller images",
                    counted(samples, "sample"), fmt::format("{}×{}×3", size.height, size.width),
                    human_bytes(static_cast<double>(resident_bytes(size, samples)))),
        ExitCode::memory);
  }
  for (int64_t done = 0; done < samples;) {
    const HostBatch batch = loader.next();
    TRAINOPT_CHECK_EQUAL(batch.where.first, done);
    images.narrow(0, done, batch.where.items).copy_(batch.input);  // blocks until the copy is done
    labels.narrow(0, done, batch.where.items).copy_(batch.target);
    for (size_t i = 0; i < batch.sample_ids.size(); ++i)
      if (const int64_t sample = done + static_cast<int64_t>(i); batch.sample_ids[i] != sample)
        unusable_.insert(sample);
    done += batch.where.items;
    loader.release(batch);
  }
  images_ = std::move(images), labels_ = std::move(labels);
  bad_samples_ = loader.samples().bad_samples();
  loading_threads_ = loader.loading_threads();
  log_info("data set on the device: {}, {}, read in {:.1f} s", counted(samples, "sample"),
           human_bytes(static_cast<double>(bytes())), seconds_since(begin));
}

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
