// The folder that holds a run's checkpoints: which are there, whether one is whole, which go.
#pragma once

#include "checkpoint/manifest.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

constexpr const char* kLatest = "latest";

struct StoredCheckpoint {
  int64_t step;
  std::filesystem::path folder;
};

/// "step-00001234".
std::string checkpoint_name(int64_t step);
/// Folders with such a name, newest first: by step, never by time stamps. Empty if `root` is not there. Throws
/// UserError(checkpoint).
std::vector<StoredCheckpoint> list_checkpoints(const std::filesystem::path& root);

/// The manifest, its format, and that exactly its files are there with exactly its sizes; reads no other file.
/// Throws UserError(checkpoint) naming the folder and what is wrong; a file that torch.save wrote is refused by name,
/// unread.
Manifest open_checkpoint(const std::filesystem::path& folder);
/// Also reads every file and compares its hash.
Manifest verify_checkpoint(const std::filesystem::path& folder);

/// Removes all but the `keep_last` newest, those in `keep` (by step) and the one `latest` leads to; none unless the
/// newest is whole: it is verified first. After a kill in the middle each one that still has its name is whole. Throws
/// UserError: checkpoint, storage.
void prune_checkpoints(const std::filesystem::path& root, int64_t keep_last, const std::vector<int64_t>& keep = {});
/// For a run that goes on after `step`: what is newer belongs to another course of the training, or is damaged. It is
/// renamed to `abandoned-step-…`, which nothing looks at; only a later one of the same step takes its place; and
/// `latest` leads to `step`. Returns the steps that were. Only for the holder of the run's lock.
std::vector<int64_t> set_aside_newer(const std::filesystem::path& root, int64_t step);
/// What a run that was killed left half written or half removed. Only for the holder of the run's lock.
void remove_drafts(const std::filesystem::path& root);

}  // namespace trainopt
