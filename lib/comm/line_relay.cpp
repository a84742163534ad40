#include "comm/line_relay.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace trainopt {
namespace {

// Lines are buffered until complete; longer ones than this are forwarded in pieces.
constexpr size_t kMaxLineBytes = 1 << 20;

}  // namespace

LineRelay::LineRelay(LineRelay&& other) noexcept
    : from_(std::exchange(other.from_, -1)),
      to_(other.to_),
      prefix_(std::move(other.prefix_)),
      partial_(std::move(other.partial_)),
      queued_(std::move(other.queued_)) {}

LineRelay::~LineRelay() {
  if (from_ >= 0) ::close(from_);
}

void LineRelay::queue_lines(bool all) {
  size_t begin = 0;
  for (size_t end; (end = partial_.find('\n', begin)) != std::string::npos; begin = end + 1)
    queued_.append(prefix_).append(partial_, begin, end + 1 - begin);
  partial_.erase(0, begin);
  if (!partial_.empty() && (all || partial_.size() >= kMaxLineBytes)) {
    queued_.append(prefix_).append(partial_).append("\n");
    partial_.clear();
  }
  write_queued();
}

/// Writes as much as possible without blocking. A writable pipe accepts PIPE_BUF bytes at once.
void LineRelay::write_queued() {
  size_t written = 0;
  while (written < queued_.size()) {
    pollfd writable{to_, POLLOUT, 0};
    if (::poll(&writable, 1, 0) <= 0) break;
    const ssize_t count = ::write(to_, queued_.data() + written, std::min<size_t>(queued_.size() - written, PIPE_BUF));
    if (count >= 0)
      written += static_cast<size_t>(count);
    else if (errno == EAGAIN)
      break;
    else if (errno != EINTR)
      written = queued_.size();  // the reader is gone: drop its lines, training continues
  }
  queued_.erase(0, written);
}

bool LineRelay::pump() {
  char piece[65536];
  write_queued();
  // Read a limited amount: a rank that never stops writing must not delay the others or a signal.
  for (int pieces = 0; pieces < 4 && from_ >= 0 && !stalled(); ++pieces) {
    const ssize_t count = ::read(from_, piece, sizeof piece);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return true;
    if (count <= 0) {
      finish();
      break;
    }
    partial_.append(piece, static_cast<size_t>(count));
    queue_lines(false);
  }
  return from_ < 0 && !stalled();
}

void LineRelay::finish() {
  if (from_ < 0) return;
  queue_lines(true);
  ::close(std::exchange(from_, -1));
}

}  // namespace trainopt
