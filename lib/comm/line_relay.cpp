#include "comm/line_relay.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

namespace trainopt {
namespace {

// A line is held back until it is whole. Longer ones than this are none: they are passed on in pieces.
constexpr size_t kLongestLine = 1 << 20;

}  // namespace

bool write_all(int to, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(to, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {
      pollfd writable{to, POLLOUT, 0};
      ::poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

LineRelay::LineRelay(LineRelay&& other) noexcept
    : from_(std::exchange(other.from_, -1)), to_(other.to_), prefix_(std::move(other.prefix_)), waiting_(std::move(other.waiting_)) {}

LineRelay::~LineRelay() {
  if (from_ >= 0) ::close(from_);
}

void LineRelay::pass_on(bool all) {
  std::string lines;
  size_t begin = 0;
  for (size_t end; (end = waiting_.find('\n', begin)) != std::string::npos; begin = end + 1) lines.append(prefix_).append(waiting_, begin, end + 1 - begin);
  waiting_.erase(0, begin);
  if (!waiting_.empty() && (all || waiting_.size() >= kLongestLine)) {
    lines.append(prefix_).append(waiting_).append("\n");
    waiting_.clear();
  }
  // A reader that went away ends no training: its lines are lost.
  write_all(to_, lines);
}

void LineRelay::pump() {
  char piece[65536];
  // Not until it is empty: one rank that never stops writing must not keep the others, or a signal, waiting.
  for (int pieces = 0; pieces < 4 && from_ >= 0; ++pieces) {
    const ssize_t count = ::read(from_, piece, sizeof piece);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      finish();
      return;
    }
    waiting_.append(piece, static_cast<size_t>(count));
    pass_on(false);
  }
}

void LineRelay::finish() {
  if (from_ < 0) return;
  pass_on(true);
  ::close(std::exchange(from_, -1));
}

}  // namespace trainopt
