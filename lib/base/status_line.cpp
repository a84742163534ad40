#include "base/status_line.h"

#include "base/print.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace trainopt {
namespace {

std::recursive_mutex drawing;  // a process has one terminal
bool drawn = false;

void write_error(std::string_view bytes) {
  std::fwrite(bytes.data(), 1, bytes.size(), stderr);
  std::fflush(stderr);
}

/// The first `columns` characters of well-formed UTF-8.
std::string_view cut(std::string_view text, size_t columns) {
  size_t end = 0;
  for (; end < text.size(); ++end) {
    const bool starts = (static_cast<unsigned char>(text[end]) & 0xC0U) != 0x80U;
    if (starts && columns-- == 0) break;
  }
  return text.substr(0, end);
}

}  // namespace

size_t terminal_columns(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void show_status_line(std::string_view text) {
  std::string line = printable(text.substr(0, text.find('\n')));
  std::replace(line.begin(), line.end(), '\t', ' ');
  const std::lock_guard lock(drawing);
  // A line that wraps cannot be erased.
  write_error(std::string(kEraseLine) + std::string(cut(line, terminal_columns(STDERR_FILENO) - 1)));
  drawn = true;
}

StatusLineRemoved::StatusLineRemoved() : lock_(drawing) {
  if (drawn) write_error(kEraseLine);
  drawn = false;
}

}  // namespace trainopt
