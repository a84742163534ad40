#include "checkpoint/store.h"

#include "base/checksum.h"
#include "base/files/files.h"
#include "base/log.h"
#include "checkpoint/draft.h"

#include <algorithm>
#include <array>

namespace trainopt {
namespace {

constexpr size_t kReadBytes = size_t{512} << 10;  // small enough to be hashed from the CPU cache

[[noreturn]] void refuse(const std::filesystem::path& folder, const std::string& why) {
  throw UserError(fmt::format("{} is not a valid checkpoint: {}", folder.string(), why), ExitCode::checkpoint);
}

/// `path` is a file, not a folder. Output of torch.save is recognised by its extension or first two bytes; no more is
/// read.
[[noreturn]] void refuse_file(const std::filesystem::path& path) {
  std::array<char, 2> first{};  // magic of a zip file, or of a pickle and its protocol
  const size_t got = File::open(path, ExitCode::checkpoint).read(first.data(), first.size());
  const bool magic =
      got == 2 && ((first[0] == 'P' && first[1] == 'K') || (first[0] == '\x80' && first[1] >= 2 && first[1] <= 5));
  constexpr std::array<const char*, 6> kPickles{".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle"};
  if (std::find(kPickles.begin(), kPickles.end(), path.extension().string()) != kPickles.end() ||
      (magic && path.extension() != ".safetensors"))
    throw UserError(fmt::format("{} looks like a pickle (torch.save), which can run any code when it is loaded; if you "
                                "trust it, convert it to safetensors",
                                path.string()),
                    ExitCode::checkpoint);
  throw UserError(fmt::format("a checkpoint is a folder, but this is a file: {}", path.string()), ExitCode::checkpoint);
}

[[noreturn]] void refuse_folder(const std::filesystem::path& folder) {
  for (const auto& root : {folder, folder / "checkpoints"})
    if (path_status(root / kLatest, ExitCode::checkpoint).kind != PathKind::absent || !list_checkpoints(root).empty())
      throw UserError(fmt::format("{} is a folder of checkpoints; name one of them, such as {}", folder.string(),
                                  (root / kLatest).string()),
                      ExitCode::checkpoint);
  refuse(folder, fmt::format("it has no {}", kManifestName));
}

void compare_hash(const std::filesystem::path& folder, const std::string& name, const StoredFile& stored,
                  std::string& piece) {
  File file = File::open(folder / name, ExitCode::checkpoint);
  Checksum checksum;
  while (const size_t got = file.read(piece.data(), piece.size())) checksum.add(piece.data(), got);
  if (checksum.bytes() != stored.bytes || checksum.value() != stored.xxh3)
    refuse(folder,
           fmt::format("{} has the hash {}, but the manifest says {}", name, hex(checksum.value()), hex(stored.xxh3)));
}

}  // namespace

std::vector<StoredCheckpoint> list_checkpoints(const std::filesystem::path& root) {
  std::vector<StoredCheckpoint> found;
  if (path_status(root / ".", ExitCode::checkpoint).kind != PathKind::folder) return found;
  for (const auto& name : names_in_folder(root, ExitCode::checkpoint)) {
    const auto step = step_of_name(name);
    if (step && path_status(root / name, ExitCode::checkpoint).kind == PathKind::folder)
      found.push_back({*step, root / name});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return found;
}

Manifest open_checkpoint(const std::filesystem::path& folder) {
  const PathKind kind = path_status(folder / ".", ExitCode::checkpoint).kind;  // "/." follows a link
  if (kind != PathKind::folder) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(folder, ignored)) refuse_file(folder);
    throw UserError(fmt::format("there is no checkpoint: {}", folder.string()), ExitCode::checkpoint);
  }
  if (path_status(folder / kManifestName, ExitCode::checkpoint).kind != PathKind::file) refuse_folder(folder);
  Manifest manifest;
  try {
    manifest = parse_manifest(read_file(folder / kManifestName, ExitCode::checkpoint, kMaxManifestBytes));
  } catch (const FileError&) {
    throw;
  } catch (const UserError& error) {
    refuse(folder, error.what());
  }
  std::error_code ignored;
  const auto named_step = step_of_name(std::filesystem::canonical(folder, ignored).filename().string());
  if (named_step && *named_step != manifest.step)
    refuse(folder, fmt::format("its manifest belongs to step {}", manifest.step));

  for (const auto& name : names_in_folder(folder, ExitCode::checkpoint))
    if (name != kManifestName && !manifest.files.contains(name))
      refuse(folder, fmt::format("{} is not listed in its manifest", name));
  for (const auto& [name, stored] : manifest.files) {
    const PathStatus status = path_status(folder / name, ExitCode::checkpoint);
    if (status.kind == PathKind::absent) refuse(folder, fmt::format("{} is missing", name));
    if (status.kind != PathKind::file) refuse(folder, fmt::format("{} is not a regular file", name));
    if (status.bytes != stored.bytes)
      refuse(folder, fmt::format("{} has {} bytes, but the manifest says {}", name, status.bytes, stored.bytes));
  }
  return manifest;
}

Manifest verify_checkpoint(const std::filesystem::path& folder) {
  Manifest manifest = open_checkpoint(folder);
  std::string piece(kReadBytes, '\0');
  for (const auto& [name, stored] : manifest.files) compare_hash(folder, name, stored, piece);
  return manifest;
}

void prune_checkpoints(const std::filesystem::path& root, int64_t keep_last, const std::vector<int64_t>& keep) {
  TRAINOPT_CHECK(keep_last >= 1);
  const std::vector<StoredCheckpoint> all = list_checkpoints(root);
  const auto latest = link_target(root / kLatest, ExitCode::checkpoint);
  std::vector<StoredCheckpoint> old;
  for (size_t i = static_cast<size_t>(keep_last); i < all.size(); ++i)
    if (std::find(keep.begin(), keep.end(), all[i].step) == keep.end() && all[i].folder.filename() != latest.filename())
      old.push_back(all[i]);
  if (old.empty()) return;
  verify_checkpoint(all.front().folder);
  for (auto& [step, folder] : old) {
    const auto hidden = root / hidden_name(step);
    rename_path(folder, hidden);
    folder = hidden;
  }
  sync_folder(root);  // from here on a power failure cannot restore a name to a folder with files missing
  for (const auto& [step, folder] : old) remove_folder(folder);
}

std::vector<int64_t> abandon_newer(const std::filesystem::path& root, int64_t step) {
  std::vector<int64_t> moved;
  for (const auto& stored : list_checkpoints(root)) {
    if (stored.step <= step) break;
    if (moved.empty()) point_link(root / kLatest, checkpoint_name(step));  // first, so that `latest` never dangles
    const auto target = root / ("abandoned-" + stored.folder.filename().string());
    remove_folder(target);  // abandoned by an earlier resume
    rename_path(stored.folder, target);
    moved.push_back(stored.step);
  }
  if (!moved.empty()) sync_folder(root);
  return moved;
}

void remove_drafts(const std::filesystem::path& root) {
  if (path_status(root / ".", ExitCode::storage).kind != PathKind::folder) return;
  std::vector<std::filesystem::path> hidden;
  bool restored = false;
  for (const auto& name : names_in_folder(root, ExitCode::storage)) {
    const auto replaced = step_of_replaced_name(name);
    if (replaced && path_status(root / checkpoint_name(*replaced), ExitCode::storage).kind == PathKind::absent) {
      rename_path(root / name, root / checkpoint_name(*replaced));  // killed between the two renames
      restored = true;
    } else if (replaced || is_hidden_name(name) || is_temporary_link(name))
      hidden.push_back(root / name);
  }
  if (hidden.empty() && !restored) return;
  sync_folder(root);  // as in prune_checkpoints(): these folders may have had a checkpoint's name
  for (const auto& path : hidden) {
    log_info("removing a leftover of an interrupted run: {}", path.string());
    remove_folder(path);
  }
}

}  // namespace trainopt
