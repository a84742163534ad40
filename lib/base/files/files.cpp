#include "base/files/files.h"

#include <unistd.h>

namespace trainopt {

std::string read_file(const std::filesystem::path& path, ExitCode code, int64_t limit) {
  File file = File::open_stream(path, code);
  const int64_t size = file.size();
  if (size > limit)
    throw UserError(fmt::format("{} is too large: {} bytes, at most {}", path.string(), size, limit), code);
  std::string bytes;
  size_t have = 0, got = 0;
  do {
    bytes.resize(have +
                 (have == 0 && size > 0 ? static_cast<size_t>(size) + 1 : 65536));  // one more, to detect the end
    got = file.read(bytes.data() + have, bytes.size() - have);
    have += got;
    if (static_cast<int64_t>(have) > limit)
      throw UserError(fmt::format("{} is too large: more than {} bytes", path.string(), limit), code);
  } while (have == bytes.size());
  bytes.resize(have);
  return bytes;
}

void replace_file(const std::filesystem::path& path, const std::function<void(File&)>& write) {
  struct Temporary {
    std::filesystem::path path;
    bool renamed = false;
    ~Temporary() {
      if (!renamed) unlink_quietly(path);
    }
  } temporary{path};
  temporary.path += fmt::format(".{}.tmp", ::getpid());
  try {
    remove_file(temporary.path);  // left by an earlier process with the same pid
    File file = File::create(temporary.path);
    write(file);
    file.sync();
    file.close();
    rename_path(temporary.path, path);
    temporary.renamed = true;
    sync_folder(folder_of(path));
  } catch (const FileError& error) {
    throw FileError("write", path, error.number(), ExitCode::storage);
  }
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  replace_file(path, [&](File& file) { file.append(bytes.data(), bytes.size()); });
}

void create_folders(const std::filesystem::path& path) {
  if (path.empty() || kind_of(path) == PathKind::folder) return;
  create_folders(path.parent_path());
  if (path.filename().empty()) return;  // "a/b/"
  try {
    make_folder(path);
  } catch (const FileError& error) {
    if (kind_of(path) != PathKind::folder)  // another process may have created it
      throw FileError("create the folder", path, error.number(), ExitCode::storage);
  }
  sync_folder(folder_of(path));
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

}  // namespace trainopt
