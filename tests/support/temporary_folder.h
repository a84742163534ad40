// A folder that goes away with the test.
#pragma once

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include <ftw.h>
#include <stdlib.h>

namespace trainopt {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "trainopt-test-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~TemporaryFolder() {
    // Not std::filesystem::remove_all: libtorch.so exports an incomplete one of its own, which is found first and crashes.
    nftw(path_.c_str(), [](const char* name, const struct stat*, int, FTW*) { return std::remove(name); }, 8, FTW_DEPTH | FTW_PHYS);
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

}  // namespace trainopt
