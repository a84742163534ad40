#include "data/shards.h"

#include "base/error.h"
#include "base/file_calls.h"

namespace trainopt {

namespace fs = std::filesystem;

std::vector<fs::path> files_ending_in(std::string_view ending, const fs::path& path) {
  std::error_code unreadable;  // reading the file will say why
  if (!fs::exists(path, unreadable) && !unreadable)
    throw UserError(
        fmt::format("the data set does not exist (relative paths start at the current folder): {}", path.string()),
        ExitCode::data);
  if (!fs::is_directory(path, unreadable)) return {path};
  std::vector<fs::path> files;
  for (const auto& name : names_in_folder(path, ExitCode::data))
    if (fs::path(name).extension() == ending) files.push_back(path / name);
  if (files.empty())
    throw UserError(fmt::format("the folder contains no *{} files: {}", ending, path.string()), ExitCode::data);
  return files;
}

std::string shard_name(int64_t shard, int64_t shards, std::string_view ending) {
  return fmt::format("{:05}-of-{:05}{}", shard, shards, ending);
}

}  // namespace trainopt
