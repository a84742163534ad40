// Sources of batches on the device, delivered one micro-batch at a time.
#pragma once

#include "data/batch.h"
#include "data/data_spec.h"
#include "data/loader.h"
#include "data/on_device/device_transforms.h"
#include "device/stream.h"

#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <vector>

namespace trainopt {

/// Copies of batches from host to device that are known to be done, timed by the device.
struct CopyTimes {
  int64_t bytes = 0;
  double ms = 0;
  double exposed_ms = 0;  ///< the part that the step's stream waited for
};

/// What happened since the last take_stats().
struct BatchSourceStats {
  double data_wait_ms = 0;        ///< next() waited for the loader (without workers: loaded)
  std::optional<double> copy_ms;  ///< host to device; null if nothing was copied or no copy is known to be done
  int64_t bytes_copied = 0;
  int64_t pinned_bytes_copied = 0;  ///< the part copied from page-locked memory
  int64_t overlapped_copies = 0;    ///< copies queued on a separate stream
  CopyTimes copies;                 ///< all copies since the source was created
  int64_t bytes_delivered = 0;  ///< batches' bytes as the loader delivered them, copied or not; the placements' bytes
                                ///< if the data set is on the device
  int64_t resident_bytes = 0;   ///< bytes of a data set kept on the device
  std::optional<at::ScalarType> finished_type;  ///< type of images finished on the device; null if none are
  std::optional<at::ScalarType> input_type;     ///< type of images as the loader delivered them; null without a loader
  int64_t threads = 0;                ///< loader threads that have loaded a sample since the loader was created
  int64_t thread_starts = 0;          ///< how often the loader's threads were started
  int64_t buffers = 0;                ///< slots of the loader
  std::optional<LoaderWork> work;     ///< the loader's work; null without one
  std::optional<StorageUse> storage;  ///< what this process read of remote files since it began; null: all are local
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Starts prefetching; next() also does so.
  virtual void start() {}
  /// The next micro-batch, in order from the first step on; epoch follows epoch without end. Throws UserError(data).
  virtual Batch next() = 0;
  /// Stops prefetching until the next call of next(), so that another trainer can run.
  virtual void pause() {}
  virtual BatchSourceStats take_stats() = 0;
  /// Samples found unusable so far, by index; also valid after next() has thrown because of them.
  virtual std::vector<RefusedSample> bad_samples() const { return {}; }
  virtual const BatchSchedule& schedule() const = 0;
};

/// A loader's batches, copied to the device (on the CPU: returned in place).
class LoadedBatches : public BatchSource {
 public:
  /// `non_blocking`: copies run on a separate stream, one batch ahead of the step if that batch is ready; needs pinned
  /// slots. `files`: those that the loader reads, whose use is a part of the statistics.
  LoadedBatches(std::unique_ptr<Loader> loader, c10::Device device, bool non_blocking,
                std::optional<DeviceTransforms> transforms, std::shared_ptr<const DataFiles> files = nullptr);

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
    Batch batch;  ///< its tensors are being copied
    Event begun, done;
    Delivered delivered;  ///< counted in the step that receives the batch, not in the one that queued the copy
  };
  struct TimedCopy {
    Event begun, done;
    std::optional<EventSpan> wait;  ///< the wait of the step's stream, if the copy ran on a separate one
    int64_t bytes;
  };
  static Delivered delivered(const HostBatch& host);
  void finish(Batch& batch);
  Batch next_in_place();
  Batch next_copied();
  Batch next_overlapped();
  Copy begin_copy(const HostBatch& host);
  void count(const Delivered& delivered, bool copied);

  std::unique_ptr<Loader> loader_;
  std::shared_ptr<const DataFiles> files_;
  c10::Device device_;
  std::optional<DeviceTransforms> transforms_;
  std::optional<Stream> copy_stream_;
  std::optional<HostBatch> current_;  ///< returned in place and not yet released
  std::optional<Copy> prefetched_;
  std::vector<TimedCopy> timings_;  ///< copies not yet counted
  CopyTimes copies_;
  BatchSourceStats stats_;
};

/// One batch, created on the device once and returned every time. Index i of the global micro-batch has the same values
/// for any number of ranks.
class SyntheticBatches : public BatchSource {
 public:
  SyntheticBatches(const DataSpec& data, at::MemoryFormat memory_format, c10::Device device, int64_t first_step = 0);

  Batch next() override;
  BatchSourceStats take_stats() override { return {}; }
  const BatchSchedule& schedule() const override { return schedule_; }

 private:
  BatchSchedule schedule_;
  int64_t context_;
  int64_t sequence_;
  at::Tensor input_, target_;
};

/// The device, format and steps of the requested batches.
struct BatchRequest {
  c10::Device device = at::kCPU;
  TensorFormat format = {};
  StepRange steps = {};
  std::vector<RefusedSample> refused = {};  ///< bad samples that the run already knows
};

/// Size and layout of the loader's batches, for plans and buffers; with a device_dataset, of the images it stores.
/// `data.dataset` must be set. Throws UserError if images would differ in size or the transforms rule out a
/// device_dataset.
BufferFormat buffer_format(const DataSpec& data, const LoaderSettings& settings, at::MemoryFormat memory_format);
/// Makes the loader alone; not for a device_dataset, whose batches do not use one.
std::unique_ptr<Loader> make_loader(const DataSpec& data, const LoaderSettings& settings,
                                    const BatchRequest& request = {});
/// The source of the batches that `data` describes. Throws UserError.
std::unique_ptr<BatchSource> make_batches(const DataSpec& data, const LoaderSettings& settings,
                                          const BatchRequest& request = {});
/// A batch of text of the largest shape that make_batches() can deliver, alone in its step. Every token and target is
/// 0: it is in no data set.
Batch largest_batch(const DataSpec& data, c10::Device device);

// Batches without values, for forecasts of memory: meta tensors, and the memory that the real source would hold.

class ShapedBatches {
 public:
  /// Stands for make_batches() on `device`. Allocates what lives as long as the source: the loader's slots if batches
  /// are read in place, a data set kept on the device, synthetic images; on a GPU a batch that is copied ahead.
  ShapedBatches(const DataSpec& data, const LoaderSettings& settings, const TensorFormat& format, c10::Device device);

  /// The next micro-batch, in order from the first step on.
  Batch next();

 private:
  at::Tensor make(at::IntArrayRef sizes, at::ScalarType type) const;
  at::Tensor make_input() const;

  BatchSchedule schedule_;
  int64_t sequence_ = 0;
  int64_t width_ = 0;  ///< text: tokens of a row, as many as in the largest batch; 0: images
  ImageSize image_;
  at::MemoryFormat memory_format_;
  at::ScalarType type_ = at::kFloat;  ///< the images' type
  at::Tensor input_;                  ///< defined: every batch's
  std::vector<at::Tensor> resident_;
};

}  // namespace trainopt
