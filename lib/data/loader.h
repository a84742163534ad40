// Loads batches into host memory with worker threads and delivers them in order. Workers claim single samples and write
// each directly to its position in a batch slot. Batches are delivered by sequence number, so scheduling cannot change
// what is delivered.
#pragma once

#include "base/clock.h"
#include "data/batch.h"
#include "data/image/stage_timer.h"
#include "data/sample_loader.h"
#include "data/schedule.h"
#include "data/token_counts.h"
#include "device/stream.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>

namespace trainopt {

// What a loader's threads did, and where their time went.

/// Sums over all workers (without workers: of the thread that calls next()).
struct LoaderWork {
  int64_t samples = 0;    ///< loaded, delivered or not
  int64_t worker_ns = 0;  ///< the time that passed × the number of threads that load
  int64_t busy_ns = 0;    ///< loading samples
  StageTimes stages;      ///< parts of busy_ns

  LoaderWork& operator+=(const LoaderWork& other);
  LoaderWork operator-(const LoaderWork& earlier) const;
};

/// The work of one thread, which another may read meanwhile.
class alignas(64) WorkCounter {
 public:
  /// Adds a sample.
  void add(int64_t busy_ns, const StageTimes& stages);
  LoaderWork so_far() const;

 private:
  mutable std::mutex mutex_;  // locked once per sample, and nearly always free
  LoaderWork work_;
};

// The effective settings of batch loading, shared by training and evaluation.

struct LoaderSettings {
  int64_t num_workers = 0;                  ///< threads; 0: the thread that calls next() loads the batch
  int64_t prefetch_factor = 2;              ///< batches prefetched per worker
  bool persistent_workers = false;          ///< false: threads end, and prefetching stops, at each epoch's end
  bool pin_memory = false;                  ///< buffers are page-locked
  bool non_blocking = false;                ///< copies run on a separate stream; needs pin_memory
  int64_t memory_limit = int64_t{4} << 30;  ///< bytes of all buffers; on the CPU also limits a DeviceDataset
  bool finish_on_device = false;            ///< images are copied as uint8, then scaled and normalised on the device
  bool resize_on_device = false;  ///< with finish_on_device: also the resize and the transforms after it, if the
                                  ///< transforms allow it (device_resize_refusal())
};

/// The steps of a run.
struct StepRange {
  int64_t first = 0;                          ///< counted from 0
  std::optional<int64_t> end = std::nullopt;  ///< this step and later ones are not prefetched
};

/// A delivered batch; its tensors are views of a slot, valid until release().
struct HostBatch {
  at::Tensor input, target;  ///< as in Batch
  std::span<const int64_t> sample_ids;
  TokenCounts counts;  ///< text only
  MicroBatch where;
  int64_t sequence = 0;  ///< micro-batches since the run began
};

class Loader {
 public:
  /// `counter`: for text.
  Loader(std::shared_ptr<SampleLoader> samples, const BatchSchedule& schedule, const LoaderSettings& settings,
         const BufferFormat& format, const StepRange& steps, std::optional<TokenCounter> counter = std::nullopt);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Starts the workers; next() also does so.
  void start();
  /// Waits for the next micro-batch. A worker's error is thrown here, in place of the batch it occurred in, after all
  /// earlier batches were delivered and all threads have ended; each further call throws it again. At most slots()
  /// batches may be unreleased.
  HostBatch next();
  /// Whether next() would return without waiting. Always false without workers.
  bool ready();
  /// Workers start no further samples until the next call of next().
  void pause();
  /// Number of batches that are complete but not delivered.
  int64_t ready_batches();
  /// Releases the oldest unreleased batch. `last_use`: its memory is overwritten only after this event.
  void release(const HostBatch& batch, std::optional<Event> last_use = std::nullopt);

  int64_t num_workers() const { return settings_.num_workers; }
  int64_t slots() const { return static_cast<int64_t>(slots_.size()); }
  int64_t slot_bytes() const { return slot_bytes_; }
  const BatchSchedule& schedule() const { return schedule_; }
  const SampleLoader& samples() const { return *samples_; }
  const BufferFormat& format() const { return format_; }
  /// What was done since the last call (at first: since the workers were started).
  LoaderWork take_work();
  /// Workers that have loaded at least one sample since the loader was created.
  int64_t loading_threads() const;
  int64_t thread_starts() const { return thread_starts_; }  ///< how often the workers were started
  /// How long next() waited (without workers: loaded) since the last call.
  double take_wait_ms() { return std::exchange(wait_ms_, 0); }

 private:
  struct LoaderBuffer {
    explicit LoaderBuffer(BatchBuffer buffers) : memory(std::move(buffers)) {}
    BatchBuffer memory;
    std::atomic<uint64_t> tickets{0};  ///< the batch it is open for, and how many of its samples are unclaimed
    std::atomic<int64_t> unfinished{0};
    MicroBatch where;
    TokenCounts counts;
    int64_t ready_for = -1;  ///< sequence number of the complete batch in this slot
    std::optional<Event> last_use;
  };
  struct Claim {
    LoaderBuffer* slot;
    int64_t sequence, item;
  };
  struct Failure {
    int64_t sequence, item;
    std::exception_ptr error;
  };

  LoaderBuffer& slot_of(int64_t sequence) { return *slots_[static_cast<size_t>(sequence % slots())]; }
  void work(int64_t worker, int64_t sequence);
  std::optional<Claim> claim(int64_t& sequence);
  void resume();
  void wait_while_paused();
  bool wait_until_open(int64_t sequence);
  void prepare(LoaderBuffer& slot, int64_t sequence);
  void announce(int64_t sequence);
  void load_sample(LoaderBuffer& slot, int64_t item, SampleLoader::Scratch& scratch, WorkCounter& counter);
  void finish_sample(const Claim& claim);
  void fail(int64_t sequence, int64_t item);
  void load_in_caller();
  void join();
  HostBatch deliver();

  std::shared_ptr<SampleLoader> samples_;
  BatchSchedule schedule_;
  LoaderSettings settings_;
  BufferFormat format_;
  std::optional<int64_t> end_step_;
  std::optional<TokenCounter> counter_;  ///< used by the thread that prepares a batch
  int64_t slot_bytes_;
  std::vector<std::unique_ptr<LoaderBuffer>> slots_;
  DecodeMemory::Hold slots_memory_;  ///< what the slots leave for the decoding of large images

  std::mutex mutex_;
  std::condition_variable may_open_;  ///< wakes workers: a slot is free, a batch is open, or the loader stops
  std::condition_variable progress_;  ///< wakes next(): a batch is ready, or the workers have ended
  std::vector<std::thread> threads_;
  std::vector<WorkCounter> counters_;  ///< one per worker; without workers one
  int64_t thread_starts_ = 0;
  std::atomic<bool> stop_{false}, paused_{false};
  // Guarded by the mutex; all count micro-batches. released ≤ delivered ≤ opened ≤ limit.
  int64_t opened_, released_, limit_;
  bool opening_ = false;   ///< a worker is preparing batch `opened_`
  int64_t announced_ = 0;  ///< batches before this are; used by the thread that prepares a batch
  int64_t working_ = 0;    ///< threads that have not ended
  int64_t ready_ = 0;
  std::optional<Failure> failure_;  ///< the failure at the earliest sample
  int64_t delivered_;               ///< used only by the calling thread

  SampleLoader::Scratch scratch_;  ///< used without workers
  double wait_ms_ = 0;
  LoaderWork counted_;                           ///< what the counters said at the last take_work()
  std::optional<Clock::time_point> work_since_;  ///< the last take_work(), or the start
};

}  // namespace trainopt
