#include "checkpoint/draft.h"

#include "base/files/files.h"
#include "base/log.h"
#include "base/units.h"
#include "checkpoint/store.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <random>

namespace trainopt {
namespace {

constexpr double kSpaceMargin = 1.1;  // allows for headers, manifest and file system metadata
constexpr size_t kWriteBytes = size_t{512} << 10;
constexpr std::string_view kStep = "step-", kReplaced = ".replaced.";

StoredFile finish(File& file, const Checksum& checksum) {
  file.sync();
  file.close();
  return {checksum.bytes(), checksum.value()};
}

StoredFile write_new(const std::filesystem::path& path, std::string_view bytes) {
  File file = File::create(path);
  file.reserve(static_cast<int64_t>(bytes.size()));
  Checksum checksum;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(kWriteBytes, bytes.size()))) {
    const std::string_view piece = bytes.substr(0, kWriteBytes);
    checksum.add(piece.data(), piece.size());
    file.append(piece.data(), piece.size());
  }
  return finish(file, checksum);
}

std::string replaced_name(int64_t step) { return std::string(kReplaced) + checkpoint_name(step); }

/// Renames `folder` to `target`. Returns the path of the folder that was there before, now hidden; empty if there was
/// none.
std::filesystem::path put_in_place(const std::filesystem::path& folder, const std::filesystem::path& target,
                                   int64_t step) {
  if (path_status(target, ExitCode::storage).kind == PathKind::absent) {
    rename_path(folder, target);
    return {};
  }
  if (exchange_paths(folder, target)) return folder;
  const auto replaced = target.parent_path() / replaced_name(step);
  remove_folder(replaced);  // left by an earlier replacement that was killed; `target` exists, so it is not needed
  rename_path(target, replaced);
  try {
    rename_path(folder, target);
  } catch (const FileError&) {
    rename_path(replaced, target);
    throw;
  }
  return replaced;
}

}  // namespace

CheckpointDraft::CheckpointDraft(const std::filesystem::path& root, int64_t step, int64_t expected_bytes)
    : root_(root) {
  TRAINOPT_CHECK(step >= 0);
  manifest_.step = step;
  create_folders(root);
  const int64_t free = free_bytes(root);
  const double needed = kSpaceMargin * static_cast<double>(expected_bytes);
  if (static_cast<double>(free) < needed)
    throw UserError(fmt::format("no room for a checkpoint in {}: it needs {}, and {} are free", root.string(),
                                human_bytes(needed), human_bytes(static_cast<double>(free))),
                    ExitCode::storage);
  const auto folder = root / hidden_name(step);
  make_folder(folder);
  folder_ = folder;
}

CheckpointDraft::~CheckpointDraft() { discard(); }

void CheckpointDraft::discard() noexcept {
  if (folder_.empty()) return;
  try {
    // Sync before deleting from a replaced folder, so that a power failure cannot restore its old name.
    sync_folder(root_);
    remove_folder(folder_);
  } catch (const std::exception& error) {
    log_warning("cannot remove an unfinished or replaced checkpoint; it is removed at the next start: {}",
                error.what());
  }
  folder_.clear();
}

void CheckpointDraft::add(const std::string& name, std::string_view bytes) {
  TRAINOPT_CHECK(is_stored_name(name));
  manifest_.files[name] = write_new(folder_ / name, bytes);
}

void CheckpointDraft::add_tensors(const std::string& name, const std::vector<SafetensorsEntry>& tensors,
                                  const SafetensorsMetadata& metadata) {
  manifest_.files[name] = write_part(folder_, name, tensors, metadata);
}

void CheckpointDraft::add_written(const std::string& name, const StoredFile& file) {
  const PathStatus status = path_status(folder_ / name, ExitCode::storage);
  if (status.kind != PathKind::file || status.bytes != file.bytes)
    throw UserError(fmt::format("another process has not written its part of the checkpoint: {}; do all ranks see the "
                                "same run directory?",
                                (folder_ / name).string()),
                    ExitCode::storage);
  manifest_.files[name] = file;
}

StoredFile write_part(const std::filesystem::path& folder, const std::string& name,
                      const std::vector<SafetensorsEntry>& tensors, const SafetensorsMetadata& metadata) {
  TRAINOPT_CHECK(is_stored_name(name));
  File file = File::create(folder / name);
  const Checksum checksum = append_safetensors(file, tensors, metadata);
  return finish(file, checksum);
}

std::filesystem::path CheckpointDraft::commit(int64_t world_size, const std::map<std::string, std::string>& versions) {
  manifest_.world_size = world_size;
  manifest_.versions = versions;
  write_new(folder_ / kManifestName, manifest_text(manifest_));
  sync_folder(folder_);  // makes the file names durable
  const std::string name = checkpoint_name(manifest_.step);
  const auto folder = root_ / name;
  folder_ = put_in_place(folder_, folder, manifest_.step);
  sync_folder(root_);  // before `latest` points there
  point_link(root_ / kLatest, name);
  sync_folder(root_);
  discard();
  return folder;
}

std::string checkpoint_name(int64_t step) { return fmt::format("{}{:08}", kStep, step); }

std::optional<int64_t> step_of_name(std::string_view name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  int64_t step = -1;
  std::from_chars(name.data() + kStep.size(), name.data() + name.size(), step);
  if (step < 0 || checkpoint_name(step) != name) return std::nullopt;
  return step;
}

std::string hidden_name(int64_t step) {
  std::random_device random;
  return fmt::format(".{}.{}.{:08x}", checkpoint_name(step), ::getpid(), random());
}

bool is_hidden_name(std::string_view name) {
  if (!name.starts_with('.')) return false;
  name.remove_prefix(1);
  const size_t end = name.find('.');
  return end != name.npos && step_of_name(name.substr(0, end)).has_value();
}

std::optional<int64_t> step_of_replaced_name(std::string_view name) {
  if (!name.starts_with(kReplaced)) return std::nullopt;
  return step_of_name(name.substr(kReplaced.size()));
}

bool is_temporary_link(std::string_view name) {
  return name.starts_with(fmt::format(".{}.", kLatest)) && name.ends_with(".tmp");
}

}  // namespace trainopt
