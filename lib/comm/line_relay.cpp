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
constexpr size_t kLongestLine = 1 << 20;

}  // namespace

LineRelay::LineRelay(LineRelay&& other) noexcept
    : from_(std::exchange(other.from_, -1)),
      to_(other.to_),
      prefix_(std::move(other.prefix_)),
      waiting_(std::move(other.waiting_)),
      leaving_(std::move(other.leaving_)) {}

LineRelay::~LineRelay() {
  if (from_ >= 0) ::close(from_);
}

void LineRelay::pass_on(bool all) {
  size_t begin = 0;
  for (size_t end; (end = waiting_.find('\n', begin)) != std::string::npos; begin = end + 1)
    leaving_.append(prefix_).append(waiting_, begin, end + 1 - begin);
  waiting_.erase(0, begin);
  if (!waiting_.empty() && (all || waiting_.size() >= kLongestLine)) {
    leaving_.append(prefix_).append(waiting_).append("\n");
    waiting_.clear();
  }
  leave();
}

/// Writes as much as possible without blocking. A writable pipe accepts PIPE_BUF bytes at once.
void LineRelay::leave() {
  size_t gone = 0;
  while (gone < leaving_.size()) {
    pollfd writable{to_, POLLOUT, 0};
    if (::poll(&writable, 1, 0) <= 0) break;
    const ssize_t count = ::write(to_, leaving_.data() + gone, std::min<size_t>(leaving_.size() - gone, PIPE_BUF));
    if (count >= 0)
      gone += static_cast<size_t>(count);
    else if (errno == EAGAIN)
      break;
    else if (errno != EINTR)
      gone = leaving_.size();  // the reader is gone: drop its lines, training continues
  }
  leaving_.erase(0, gone);
}

bool LineRelay::pump() {
  char piece[65536];
  leave();
  // Read a limited amount: a rank that never stops writing must not delay the others or a signal.
  for (int pieces = 0; pieces < 4 && from_ >= 0 && !stalled(); ++pieces) {
    const ssize_t count = ::read(from_, piece, sizeof piece);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return true;
    if (count <= 0) {
      finish();
      break;
    }
    waiting_.append(piece, static_cast<size_t>(count));
    pass_on(false);
  }
  return from_ < 0 && !stalled();
}

void LineRelay::finish() {
  if (from_ < 0) return;
  pass_on(true);
  ::close(std::exchange(from_, -1));
}

}  // namespace trainopt
