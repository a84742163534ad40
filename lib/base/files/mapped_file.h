// A file that is read through memory mapping. Safe to read from many threads.
//
// Others may shorten a mapped file, and its disk may fail. To read such a part would kill the process without a word
// (SIGBUS). Instead it reads as zeros from then on, and require_whole() throws: so call it after reading, and before
// what was read is used.
#pragma once

#include "base/error.h"

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace trainopt {

struct MappedRange;

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
  /// Throws UserError, naming the file, if it is shorter now, or if a part of it was read as zeros.
  void require_whole() const;

 private:
  std::filesystem::path path_;
  ExitCode code_;
  int fd_ = -1;
  int64_t changed_ns_ = 0;
  std::span<const uint8_t> bytes_;
  MappedRange* range_ = nullptr;
};

/// MappedFile::require_whole() of every file that is mapped now and of which a part was read as zeros. Takes no more
/// than one load if there is none.
void require_mapped_files_whole();

}  // namespace trainopt
