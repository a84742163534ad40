#include "train/checkpoint_reader.h"

#include "base/files.h"

namespace trainopt {
namespace {

constexpr int kStateVersion = 1;
constexpr int64_t kMaxStateBytes = int64_t{64} << 20;

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& why) {
  throw UserError(fmt::format("this program cannot read the checkpoint: {}; {}", file.string(), why),
                  ExitCode::checkpoint);
}

const StoredFile& listed(const Manifest& manifest, const std::filesystem::path& folder, const std::string& name) {
  const auto found = manifest.files.find(name);
  if (found == manifest.files.end()) refuse(folder, fmt::format("it has no {}", name));
  return found->second;
}

std::string read_verified(const std::filesystem::path& folder, const Manifest& manifest, const std::string& name) {
  const StoredFile& expected = listed(manifest, folder, name);
  std::string bytes = read_file(folder / name, ExitCode::checkpoint, kMaxStateBytes);
  Checksum sum;
  sum.add(bytes.data(), bytes.size());
  if (sum.value() != expected.xxh3) refuse(folder / name, "the file is damaged: its XXH3 differs from the manifest");
  return bytes;
}

}  // namespace

std::string rank_file(int64_t rank) { return fmt::format("rank-{:04}.safetensors", rank); }

std::string state_text(const Json& values) {
  Json state = {{"schema_version", kStateVersion}};
  state.update(values);
  return json_text(state, 2) + "\n";
}

ArchiveReader read_checkpoint(const std::filesystem::path& folder) {
  const Manifest manifest = open_checkpoint(folder);
  Json state = parse_json(read_verified(folder, manifest, kStateFile), /*allow_exceptions=*/false);
  if (!state.is_object() || !state.contains("schema_version"))
    refuse(folder / kStateFile, "it is not a JSON object with a schema_version");
  if (state["schema_version"] != kStateVersion)
    refuse(folder / kStateFile, fmt::format("it has schema_version {}, but this program reads {}",
                                            json_text(state["schema_version"]), kStateVersion));
  read_verified(folder, manifest, kRecipeFile);  // only verified here; the caller reads it next
  NamedTensors tensors;
  for (int64_t rank = 0; rank < manifest.world_size; ++rank)
    for (auto& entry : load_tensors(folder / rank_file(rank), listed(manifest, folder, rank_file(rank)).xxh3))
      tensors.push_back(std::move(entry));
  return {folder, std::move(tensors), std::move(state)};
}

std::optional<ArchiveReader> read_newest_checkpoint(const std::filesystem::path& root,
                                                    const std::function<void(const std::string&)>& rejected) {
  const auto all = list_checkpoints(root);
  for (const auto& candidate : all) {
    try {
      return read_checkpoint(candidate.folder);
    } catch (const UserError& error) {  // named recovery: try the next older one
      rejected(error.what());
    }
  }
  if (!all.empty())
    throw UserError(fmt::format("none of the {} checkpoints is valid; set checkpoint.resume to another one, or remove "
                                "them to start from scratch: {}",
                                all.size(), root.string()),
                    ExitCode::checkpoint);
  return std::nullopt;
}

}  // namespace trainopt
