// A file that is read through memory mapping. Safe to read from many threads.
#pragma once

#include "base/error.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

namespace trainopt {

class MappedFile {
 public:
  /// Throws FileError, or UserError for what is no regular file, with this code.
  MappedFile(const std::filesystem::path& path, ExitCode code);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// The file as it was when it was opened.
  std::span<const uint8_t> bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }
  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }
  int64_t changed_ns() const { return changed_ns_; }  ///< time of the last change before it was opened
  /// The size now, if it is less than size(). To read bytes that the file no longer has would kill the process without
  /// a word, so ask before.
  std::optional<int64_t> shorter_size() const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  int64_t changed_ns_ = 0;
  std::span<const uint8_t> bytes_;
};

}  // namespace trainopt
