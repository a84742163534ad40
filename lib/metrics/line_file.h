// Lines appended to a file without ever stopping the training: buffered, flushed every second and at the end; a full
// disk costs lines and one warning.
#pragma once

#include "base/clock.h"
#include "base/file_calls.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace trainopt {

/// Writes all bytes to `fd`; returns 0 or errno, and in `written` how many got there. A closed pipe is EPIPE, never a
/// signal.
int write_fully(int fd, std::string_view bytes, size_t& written);

class LineFile {
 public:
  /// Appends to what is there. Throws UserError(storage) if the file cannot be opened: at the start of a run that is
  /// still cheap to say.
  explicit LineFile(const std::filesystem::path& path);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  bool was_empty() const { return was_empty_; }
  /// `line` ends with a newline.
  void write(std::string_view line);
  void flush();
  /// Lines that could not be written. What is in the file are whole lines as long as the disk allows to cut off a torn
  /// one.
  int64_t dropped_lines() const { return dropped_; }

 private:
  void cut_off(int64_t torn);

  File file_;
  bool was_empty_;
  std::string buffer_;
  Clock::time_point flushed_at_ = Clock::now();
  int64_t dropped_ = 0;
};

}  // namespace trainopt
