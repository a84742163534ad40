#include "data/files/real_paths.h"

#include "storage/path_kind.h"

#include <xxhash.h>

namespace trainopt {

namespace fs = std::filesystem;

std::string RealPaths::of(const std::string& path, bool may_be_link) {
  if (is_remote(path)) return path;
  std::error_code unreadable;  // then the path stands for itself
  const fs::path file = path;
  if (may_be_link && fs::is_symlink(fs::symlink_status(file, unreadable))) {
    const fs::path real = fs::weakly_canonical(file, unreadable);
    return unreadable ? path : real.string();
  }
  const auto [folder, is_new] = folders_.try_emplace(file.parent_path());
  if (is_new) {
    const fs::path parent = file.parent_path().empty() ? fs::path(".") : file.parent_path();
    const fs::path real = fs::weakly_canonical(parent, unreadable);
    folder->second = unreadable ? parent : real;
  }
  return (folder->second / file.filename()).string();
}

uint64_t RealPaths::hash_of(const std::string& path, bool may_be_link) {
  const std::string real = of(path, may_be_link);
  return XXH3_64bits(real.data(), real.size());
}

}  // namespace trainopt
