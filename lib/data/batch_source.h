// Batches on the device, one micro-batch after another, whatever they come from.
#pragma once

#include "data/batch.h"
#include "data/data_spec.h"
#include "data/device_transforms.h"
#include "data/loader.h"
#include "device/stream.h"

#include <memory>
#include <optional>

namespace trainopt {

/// Since the last take_stats().
struct BatchSourceStats {
  double data_wait_ms = 0;        ///< next() blocked on the loader (without workers: loaded)
  std::optional<double> copy_ms;  ///< host to device; null where nothing is copied or no copy is known to have ended
  int64_t bytes_copied = 0;
  int64_t pinned_bytes_copied = 0;  ///< the part that came from page-locked memory
  int64_t copies_beside_step = 0;   ///< copies queued on a stream of their own
  int64_t bytes_delivered = 0;      ///< of the batches as the loader handed them over, copied or not; of their numbers,
                                    ///< where the images lie on the device
  int64_t resident_bytes = 0;       ///< of a data set that lies on the device
  std::optional<at::ScalarType> finished_type;  ///< of the images as the device finished them; null: it does not
  std::optional<at::ScalarType> input_type;     ///< of the images as the loader handed them over; null: no loader
  int64_t threads = 0;                          ///< of the loader since it was made: those that have loaded a sample
  int64_t thread_starts = 0;                    ///< and how often they were started
  int64_t buffers = 0;                          ///< of the loader
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Begins to prefetch; next() does so by itself.
  virtual void start() {}
  /// In order from the first step on, without end; epochs follow each other. Throws UserError(data).
  virtual Batch next() = 0;
  /// Prefetches nothing more until next() is called again, so that another trainer can have its turn.
  virtual void pause() {}
  virtual BatchSourceStats take_stats() = 0;
  /// Samples that could not be used so far, by number; also after next() has thrown because of them.
  virtual std::vector<RefusedSample> bad_samples() const { return {}; }
  virtual const BatchSchedule& schedule() const = 0;
};

/// A loader's batches, copied to the device (on the CPU: handed out in place).
class LoadedBatches : public BatchSource {
 public:
  /// `non_blocking`: copies run on a stream of their own and, when a batch is ready, one batch ahead of the step; needs
  /// pinned slots.
  LoadedBatches(std::unique_ptr<Loader> loader, c10::Device device, bool non_blocking,
                std::optional<DeviceTransforms> transforms);

  void start() override { loader_->start(); }
  void pause() override { loader_->pause(); }
  Batch next() override;
  BatchSourceStats take_stats() override;
  std::vector<RefusedSample> bad_samples() const override { return loader_->samples().bad_samples(); }
  const BatchSchedule& schedule() const override { return loader_->schedule(); }
  Loader& loader() { return *loader_; }

 private:
  struct Delivered {
    int64_t bytes, pinned_bytes;
    at::ScalarType input_type;
  };
  struct Copy {
    Batch batch;  ///< its tensors on their way
    Event begun, done;
    Delivered delivered;  ///< counted with the step that gets the batch, not the one in which the copy was queued
  };
  static Delivered delivered(const HostBatch& host);
  void finish(Batch& batch);
  Batch next_in_place();
  Batch next_copied();
  Batch next_overlapped();
  Copy begin_copy(const HostBatch& host);
  void count(const Delivered& delivered, bool copied);

  std::unique_ptr<Loader> loader_;
  c10::Device device_;
  std::optional<DeviceTransforms> transforms_;
  std::optional<Stream> copy_stream_;
  std::optional<HostBatch> held_;  ///< handed out in place and not yet released
  std::optional<Copy> ahead_;
  std::vector<std::pair<Event, Event>> timings_;  ///< of copies not yet counted
  BatchSourceStats stats_;
};

/// One batch made on the device and given again and again. Place i of the global micro-batch has the same numbers for
/// any number of ranks.
class SyntheticBatches : public BatchSource {
 public:
  SyntheticBatches(const BatchSchedule& schedule, const SyntheticImages& images, at::MemoryFormat memory_format,
                   uint64_t seed, c10::Device device, int64_t first_step = 0);

  Batch next() override;
  BatchSourceStats take_stats() override { return {}; }
  const BatchSchedule& schedule() const override { return schedule_; }

 private:
  BatchSchedule schedule_;
  int64_t sequence_;
  at::Tensor input_, target_;
};

/// Which batches are wanted, where and as what.
struct BatchRequest {
  c10::Device device = at::kCPU;
  TensorFormat format = {};
  StepRange steps = {};
  std::vector<RefusedSample> refused = {};  ///< bad samples that the run has met already
};

/// Size and layout of a loader's batches, for plans and buffers; with a device_dataset of the images that are kept.
/// `data` has a data set. Throws UserError if images would differ in size, or the transforms allow no device_dataset.
BufferFormat buffer_format(const DataSpec& data, const LoaderSettings& settings, at::MemoryFormat memory_format);
/// The loader alone; not for a device_dataset, whose batches have none.
std::unique_ptr<Loader> make_loader(const DataSpec& data, const LoaderSettings& settings,
                                    const BatchRequest& request = {});
/// Batches of `data`. Throws UserError.
std::unique_ptr<BatchSource> make_batches(const DataSpec& data, const LoaderSettings& settings,
                                          const BatchRequest& request = {});

}  // namespace trainopt
