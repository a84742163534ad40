// A checkpoint's contents: which files it has, and reading them back, every byte compared with the manifest's hashes.
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
/// state.json of these values.
std::string state_text(const Json& values);

/// Reads a whole checkpoint, every file verified. Throws UserError(checkpoint).
ArchiveReader read_checkpoint(const std::filesystem::path& folder);
/// The newest checkpoint of `root` that is whole. `rejected` hears of each one that is not and why. nullopt if there is
/// none at all; throws UserError(checkpoint) if there are some and none is whole: starting again from nothing would be
/// a surprise.
std::optional<ArchiveReader> read_newest_checkpoint(const std::filesystem::path& root,
                                                    const std::function<void(const std::string&)>& rejected);

}  // namespace trainopt
