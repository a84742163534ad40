// A checkpoint while it is being written: a hidden folder beside the finished ones, which becomes one of them at one
// moment or goes away.
#pragma once

#include "base/safetensors.h"
#include "checkpoint/manifest.h"

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

class CheckpointDraft {
 public:
  /// Makes `.step-00001234.<pid>.<random>/` in `root` (made too, if it is not there) after looking whether about
  /// `expected_bytes` fit on the disk. Throws UserError(storage), for a full disk with the bytes needed and free.
  CheckpointDraft(const std::filesystem::path& root, int64_t step, int64_t expected_bytes);
  /// Removes what was not committed or was replaced; an error there is only logged.
  ~CheckpointDraft();
  CheckpointDraft(const CheckpointDraft&) = delete;
  CheckpointDraft& operator=(const CheckpointDraft&) = delete;

  // Written, fsynced, hashed on the way. Throw UserError(storage).
  void add(const std::string& name, std::string_view bytes);
  void add_tensors(const std::string& name, const std::vector<SafetensorsEntry>& tensors,
                   const SafetensorsMetadata& metadata = {});
  /// Where other processes put their files with write_part(), to be listed here.
  const std::filesystem::path& folder() const { return folder_; }
  void list(const std::string& name, const StoredFile& file) { manifest_.files[name] = file; }

  /// Manifest, fsyncs, rename to `root/step-00001234` (one that is there already is replaced at one moment), fsync of
  /// `root`, then `root/latest` points to it. Returns the folder. Throws UserError(storage); `latest` then leads to a
  /// whole checkpoint if it did before, and whatever has a checkpoint's name is whole: the old one, or already the new.
  std::filesystem::path commit(int64_t world_size, const std::map<std::string, std::string>& versions);

 private:
  void discard() noexcept;

  std::filesystem::path root_, folder_;  ///< folder_: what goes away at the end, empty if nothing does
  Manifest manifest_;
};

/// Another process's file in a draft: written and fsynced. Throws UserError(storage).
StoredFile write_part(const std::filesystem::path& folder, const std::string& name,
                      const std::vector<SafetensorsEntry>& tensors, const SafetensorsMetadata& metadata = {});

}  // namespace trainopt
