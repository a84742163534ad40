// The line at the bottom of a terminal that says what a long command is doing. It is on standard error. Whatever this
// process prints or logs removes it first (base/print.h, base/log.h), and the next show_status_line() draws it again.
#pragma once

#include <cstddef>
#include <mutex>
#include <string_view>

namespace trainopt {

/// Moves to the line's beginning and erases it.
inline constexpr std::string_view kEraseLine = "\r\033[2K";

/// Columns of the terminal on this descriptor; 80 if it does not say.
size_t terminal_columns(int fd);

/// Draws the line, or draws it anew. What does not fit into the terminal's width is cut off; each character counts as
/// one column.
void show_status_line(std::string_view text);

/// Removes the line, and keeps other threads from drawing it while the object lives.
class StatusLineRemoved {
 public:
  StatusLineRemoved();

 private:
  std::lock_guard<std::recursive_mutex> lock_;  ///< recursive: a line that cannot be logged is reported by one
};

}  // namespace trainopt
