// The folder of a run's checkpoints: lists, verifies and prunes them.
#pragma once

#include "checkpoint/manifest.h"

#include <filesystem>
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
/// Folders with such names, newest first. Ordered by step, never by time stamp. Empty if `root` does not exist. Throws
/// UserError(checkpoint).
std::vector<StoredCheckpoint> list_checkpoints(const std::filesystem::path& root);

/// Reads and checks the manifest, and checks that the folder contains exactly the listed files with the listed sizes.
/// Reads no other file. Throws UserError(checkpoint) naming the folder and what is wrong. A file written by torch.save
/// is refused as such without being loaded.
Manifest open_checkpoint(const std::filesystem::path& folder);
/// Also reads every file and compares its hash.
Manifest verify_checkpoint(const std::filesystem::path& folder);

/// Removes all checkpoints but the `keep_last` newest, those whose steps are in `keep`, and the one that `latest`
/// points to. Verifies the newest first and removes nothing if it is damaged. If the process is killed meanwhile, every
/// checkpoint that still has its name is complete. Throws UserError: checkpoint, storage.
void prune_checkpoints(const std::filesystem::path& root, int64_t keep_last, const std::vector<int64_t>& keep = {});
/// For a run that resumes from `step`: newer checkpoints belong to an abandoned course of training, or are damaged.
/// Renames them to `abandoned-step-…`, which nothing reads and only a later one of the same step replaces, and points
/// `latest` to `step`. Returns their steps. Only for the holder of the run's lock.
std::vector<int64_t> abandon_newer(const std::filesystem::path& root, int64_t step);
/// Removes what a killed run left half written or half removed, and restores a checkpoint that it was replacing. Only
/// for the holder of the run's lock.
void remove_drafts(const std::filesystem::path& root);

}  // namespace trainopt
