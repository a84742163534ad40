// Batches on the device, one micro-batch after another, whatever they come from.
#pragma once

#include "data/batch.h"
#include "data/dataset.h"
#include "data/device_preprocess.h"
#include "data/loader.h"
#include "data/schedule.h"
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
                std::optional<DevicePreprocess> preprocess);

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
  std::optional<DevicePreprocess> preprocess_;
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
  struct Images {
    int64_t side, num_classes;
    at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;
  };
  SyntheticBatches(const BatchSchedule& schedule, const Images& images, uint64_t seed, c10::Device device,
                   int64_t first_step = 0);

  Batch next() override;
  BatchSourceStats take_stats() override { return {}; }
  const BatchSchedule& schedule() const override { return schedule_; }

 private:
  BatchSchedule schedule_;
  int64_t sequence_;
  at::Tensor input_, target_;
};

class DeviceDataset;

struct BatchesOptions {
  c10::Device device = at::kCPU;
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;
  at::ScalarType compute_type = at::kFloat;  ///< of the step's first operation: images that are finished on the device
                                             ///< get it there; others are float32
  bool device_preprocess = false;            ///< images cross as uint8; scaling and normalising happen on the device
  bool device_resize = false;                ///< so do the resize and what follows it; see device_resize_refusal()
  int64_t ranks = 1, rank = 0, accumulation = 1;
  uint64_t seed = 0;
  int64_t first_step = 0;
  std::optional<int64_t> end_step;
  int64_t num_classes = 10;            ///< of synthetic labels
  std::vector<RefusedSample> refused;  ///< bad samples that the run has met already
  std::shared_ptr<DeviceDataset>
      resident;  ///< of data.cache: device, to be used again by sources opened later; null: each source has its own
};

/// Epochs of `samples` cut as the options say.
BatchSchedule make_schedule(const DataConfig& data, int64_t samples, const BatchesOptions& options);
/// The size and layout of a loader's batches, for plans and buffers; with data.cache: device of the images that are
/// kept. Throws UserError if images would differ in size.
BufferFormat buffer_format(const DataConfig& data, const Dataset& dataset, const BatchesOptions& options);
/// The loader alone; not for data.cache: device, whose batches have none.
std::unique_ptr<Loader> make_loader(const DataConfig& data, std::shared_ptr<const Dataset> dataset,
                                    const BatchesOptions& options);
/// What `data` describes; `dataset` is null for synthetic. Evaluation passes a DataConfig with its own transforms,
/// batch_size, no shuffle and no drop_last.
std::unique_ptr<BatchSource> make_batches(const DataConfig& data, std::shared_ptr<const Dataset> dataset,
                                          const BatchesOptions& options);

}  // namespace trainopt
