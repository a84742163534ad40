// The real paths of many files: each folder is resolved once, and only links one by one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace trainopt {

class RealPaths {
 public:
  /// The path without links; itself in object storage, or if it cannot be found out. `may_be_link`: whether to ask.
  std::string of(const std::string& path, bool may_be_link = true);
  /// A hash of that path.
  uint64_t hash_of(const std::string& path, bool may_be_link = true);

 private:
  std::map<std::filesystem::path, std::filesystem::path> folders_;
};

}  // namespace trainopt
