// The files of a checkpoint: CheckpointWriter saves them during training, and read_checkpoint() reads them back, with
// every byte verified against the manifest's hashes.
#pragma once

#include "checkpoint/store.h"
#include "train/checkpoint/archive.h"

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

inline constexpr const char *kStateFile = "state.json", *kRecipeFile = "recipe.yaml";
/// "rank-0000.safetensors"
std::string rank_file(int64_t rank);
/// The text of state.json for these values.
std::string state_text(const Json& values);

/// Reads a complete checkpoint and verifies every file. Throws UserError(checkpoint).
ArchiveReader read_checkpoint(const std::filesystem::path& folder);
/// Reads the newest valid checkpoint in `root`. Calls `rejected` with the reason for each newer one that is damaged.
/// Returns nullopt if there are no checkpoints. Throws UserError(checkpoint) if there are some but none is valid,
/// because starting from scratch would be a surprise.
std::optional<ArchiveReader> read_newest_checkpoint(const std::filesystem::path& root,
                                                    const std::function<void(const std::string&)>& rejected);

// Saves a run's state during training: the state is copied at the end of a step, and a background thread writes the
// copy. There is one write at a time; its errors are thrown at the next step.

struct CheckpointWriterOptions {
  std::filesystem::path root;  ///< `<run_dir>/checkpoints`
  std::optional<int64_t> every_n_steps;
  std::optional<int64_t> keep_last = 2;  ///< null: all are kept
  bool background = true;
  std::vector<int64_t> keep;                    ///< steps that are never pruned, such as the one resumed from
  std::string recipe;                           ///< contents of recipe.yaml
  std::map<std::string, std::string> versions;  ///< informational
  std::function<void()> before_commit = [] {
  };  ///< flushes records that must be on the disk before the checkpoint; called on the writing thread
  std::atomic<bool>* requested = nullptr;  ///< set to request a checkpoint now
  RankPosition position;                   ///< each rank writes a file; then rank 0 writes the rest
  /// Exchange texts with other ranks (see Job); `get` waits. Only with several ranks; called on the writing thread.
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

  /// Whether a checkpoint is due after this step.
  bool due(int64_t step) const { return options_.every_n_steps && step % *options_.every_n_steps == 0; }
  /// Whether a checkpoint has been requested.
  bool requested() const { return options_.requested && *options_.requested; }
  /// Waits for an earlier write, then returns once the state is copied (background) or on the disk. Throws the error of
  /// that earlier write or of this save: UserError(storage), or UserError(diverged) if a weight is non-finite.
  void save(const ArchiveWriter& archive, int64_t step);
  /// Throws the error of a background write, once.
  void check();
  /// Waits for the write in flight, then check().
  void finish();
  /// The newest step whose checkpoint is complete on the disk.
  std::optional<int64_t> saved_step() const;

 private:
  struct Snapshot {
    int64_t step = 0;
    NamedTensors tensors;  ///< on the host, contiguous
    Json values, lists;    ///< state.json: the values and the merged lists of all ranks
  };
  Snapshot copy_of(const ArchiveWriter& archive, int64_t step, bool own_memory);
  void write(const Snapshot& snapshot);
  void write_rank_part(const Snapshot& snapshot);
  void write_complete(const Snapshot& snapshot);
  void run();
  void wait_until_idle();

  CheckpointWriterOptions options_;
  int64_t written_ = 0;  ///< number of writes, the same on all ranks; part of the keys they exchange
  std::map<std::string, at::Tensor> buffers_;  ///< reused between saves; the writing thread reads them only while busy_
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<Snapshot> pending_;
  bool busy_ = false, ending_ = false;
  std::exception_ptr error_;
  std::optional<int64_t> saved_step_;
  std::thread thread_;
};

}  // namespace trainopt
