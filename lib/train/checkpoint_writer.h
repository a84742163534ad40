// Saves a run's state while it goes on: a copy is taken at the step's end, a thread writes it. One write at a time;
// what goes wrong in it is thrown at the next step.
#pragma once

#include "train/archive.h"

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace trainopt {

struct CheckpointWriterOptions {
  std::filesystem::path root;  ///< `<run_dir>/checkpoints`
  std::optional<int64_t> every_n_steps;
  int64_t keep_last = 2;
  bool background = true;
  std::vector<int64_t> keep;                    ///< steps that are never pruned: the one resumed from
  std::string recipe;                           ///< recipe.yaml
  std::map<std::string, std::string> versions;  ///< for people
  std::function<void()> before_commit = [] {
  };  ///< records that must be on the disk before the checkpoint is; on the writing thread
  std::atomic<bool>* requested = nullptr;  ///< somebody asked for one now
  RankPosition position;                   ///< each rank writes a file; rank 0 the rest, when all are there
  /// Texts for other ranks, and theirs, waited for; only with several ranks. On the writing thread.
  std::function<void(const std::string& key, const std::string& value)> put;
  std::function<std::string(const std::string& key)> get;
};

class CheckpointWriter {
 public:
  explicit CheckpointWriter(CheckpointWriterOptions options);
  /// Waits for the write in flight; its error is lost unless finish() was called.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Whether one is due after this step.
  bool due(int64_t step) const { return options_.every_n_steps && step % *options_.every_n_steps == 0; }
  /// Whether somebody has asked this process for one.
  bool requested() const { return options_.requested && *options_.requested; }
  /// Returns once the state is copied (background) or on the disk. Waits for an earlier write. Throws what save() or
  /// that write hit: UserError, storage, or diverged if a weight is not finite.
  void save(const ArchiveWriter& archive, int64_t step);
  /// Throws what a background write hit, once.
  void check();
  /// Waits for the write in flight, then check().
  void finish();
  /// The newest step that is wholly on the disk.
  std::optional<int64_t> saved_step() const;

 private:
  struct Snapshot {
    int64_t step = 0;
    NamedTensors tensors;  ///< on the host, contiguous
    Json values, lists;    ///< state.json is the values, and the lists of all ranks
  };
  Snapshot copy_of(const ArchiveWriter& archive, int64_t step, bool own_memory);
  void write(const Snapshot& snapshot);
  void write_part_of(const Snapshot& snapshot);
  void write_whole(const Snapshot& snapshot);
  void run();
  void wait_until_idle();

  CheckpointWriterOptions options_;
  int64_t written_ = 0;  ///< the same on all ranks: names what they tell each other
  std::map<std::string, at::Tensor>
      buffers_;  ///< reused from save to save; read by the writing thread only while busy_
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<Snapshot> pending_;
  bool busy_ = false, ending_ = false;
  std::exception_ptr error_;
  std::optional<int64_t> saved_step_;
  std::thread thread_;
};

}  // namespace trainopt
