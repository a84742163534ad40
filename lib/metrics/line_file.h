// Appends lines (or binary records) to a file without ever stopping training: buffered, flushed every second and at the
// end. A full disk costs lines and one message.
#pragma once

#include "base/clock.h"
#include "base/files/file_calls.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

/// Writes all bytes to `fd`. Returns 0 or errno; `written` receives the number of bytes written. A closed pipe gives
/// EPIPE, never a signal.
int write_fully(int fd, std::string_view bytes, size_t& written);

class LineFile {
 public:
  /// Opens the file for appending. Throws UserError(storage) if that fails: at the start of a run an error is still
  /// cheap.
  explicit LineFile(const std::filesystem::path& path);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  bool was_empty() const { return was_empty_; }
  /// `line` is written completely or not at all: one line with its newline, or one binary record.
  void write(std::string_view line);
  void flush();
  /// Lines that could not be written. The file contains only complete lines, unless the disk also fails when a torn one
  /// is cut off.
  int64_t dropped_lines() const { return dropped_; }

 private:
  void truncate_torn_line(int64_t torn);

  File file_;
  bool was_empty_;
  std::string buffer_;
  std::vector<size_t> ends_;  ///< where the lines in buffer_ end
  Clock::time_point flushed_at_ = Clock::now();
  int64_t dropped_ = 0;
};

// Keeps the record files of a resumed run free of gaps and duplicate steps.

/// Removes what was written after the checkpoint: every line whose step is above `step`, and a torn last line. They are
/// kept in `<file>.before-step-<step>`, so that nothing is lost if the run should not have been resumed there. A line
/// is JSON that begins with {"step":N or CSV that begins with N; a CSV header is kept. The last step of a process is
/// recorded even if `every_n_steps` excludes it; such a line of `step` is removed too, since the run continues. Does
/// nothing if the file is missing. Throws UserError(storage).
void remove_lines_after(const std::filesystem::path& file, int64_t step, int64_t every_n_steps = 1);

}  // namespace trainopt
