// A folder that is removed at the end of the test.
#pragma once

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include <ftw.h>
#include <stdlib.h>
#include <unistd.h>

namespace trainopt {

class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string name = (parent / "trainopt-test-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~TemporaryFolder() {
    // Not std::filesystem::remove_all: libtorch.so exports its own incomplete version, which is found first and
    // crashes.
    nftw(
        path_.c_str(), [](const char* name, const struct stat*, int, FTW*) { return std::remove(name); }, 8,
        FTW_DEPTH | FTW_PHYS);
  }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  std::string text(const std::string& name) const {
    std::ifstream file(path_ / name);
    std::stringstream content;
    content << file.rdbuf();
    return content.str();
  }

 private:
  std::filesystem::path path_;
};

/// In memory if the machine has /dev/shm: for tests that fsync thousands of times, which takes minutes on a busy disk.
class MemoryFolder : public TemporaryFolder {
 public:
  MemoryFolder()
      : TemporaryFolder(::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path()) {}
};

}  // namespace trainopt
