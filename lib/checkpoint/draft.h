// A checkpoint being written: a hidden folder next to the finished checkpoints. It becomes one of them by an atomic
// rename, or is removed.
#pragma once

#include "base/files/safetensors.h"
#include "checkpoint/manifest.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

class CheckpointDraft {
 public:
  /// Creates `root` if missing, checks that `expected_bytes` and a margin fit on the disk, and creates the folder
  /// `.step-00001234.<pid>.<random>/` in `root`. Throws UserError(storage), with the bytes needed and free if they do
  /// not fit.
  CheckpointDraft(const std::filesystem::path& root, int64_t step, int64_t expected_bytes);
  /// Removes the folder that was not committed or was replaced. Errors are only logged.
  ~CheckpointDraft();
  CheckpointDraft(const CheckpointDraft&) = delete;
  CheckpointDraft& operator=(const CheckpointDraft&) = delete;

  // Write a file, hash it in the same pass, and fsync it. Throw UserError(storage).
  void add(const std::string& name, std::string_view bytes);
  void add_tensors(const std::string& name, const std::vector<SafetensorsEntry>& tensors,
                   const SafetensorsMetadata& metadata = {});
  /// Where other processes write their files with write_part(). Add each here once it is written.
  const std::filesystem::path& folder() const { return folder_; }
  /// Throws UserError(storage) if the folder has no such file of that size.
  void add_written(const std::string& name, const StoredFile& file);

  /// Writes the manifest, fsyncs, renames the folder to `root/step-00001234`, fsyncs `root`, and points `root/latest`
  /// to the checkpoint. An existing checkpoint of that step is replaced, atomically if the file system can exchange two
  /// folders. Returns the folder. Throws UserError(storage); even then every folder with a checkpoint's name is
  /// complete, and `latest` points to a complete checkpoint if it did before.
  std::filesystem::path commit(int64_t world_size, const std::map<std::string, std::string>& versions);

 private:
  void discard() noexcept;

  std::filesystem::path root_, folder_;  ///< folder_: removed by the destructor unless empty
  Manifest manifest_;
};

/// Writes and fsyncs one file of another process's draft. Throws UserError(storage).
StoredFile write_part(const std::filesystem::path& folder, const std::string& name,
                      const std::vector<SafetensorsEntry>& tensors, const SafetensorsMetadata& metadata = {});

// Names of folders and links that are not, or no longer, checkpoints. They begin with a dot.

/// The step of "step-00001234"; nullopt for all other names.
std::optional<int64_t> step_of_name(std::string_view name);

/// ".step-00001234.<pid>.<random>": not yet committed, or renamed for removal.
std::string hidden_name(int64_t step);
bool is_hidden_name(std::string_view name);

/// ".replaced.step-00001234": the temporary name of the old checkpoint where two folders cannot be exchanged
/// atomically.
std::optional<int64_t> step_of_replaced_name(std::string_view name);

/// Whether this is point_link()'s temporary link for `latest`.
bool is_temporary_link(std::string_view name);

}  // namespace trainopt
