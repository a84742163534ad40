// The files of a checkpoint, and reading them back with every byte verified against the manifest's hashes.
#pragma once

#include "checkpoint/store.h"
#include "train/archive.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

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

}  // namespace trainopt
