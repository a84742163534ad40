#include "metrics/line_file.h"

#include "base/log.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace trainopt {
namespace {

constexpr double kFlushSeconds = 1.0;
constexpr size_t kFlushBytes = 64 << 10;

/// Writing to a closed pipe raises SIGPIPE in the writing thread. Blocks the signal during the write and discards it if
/// it was raised.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    const timespec now{0, 0};
    if (!was_pending_)
      while (sigtimedwait(&pipe_, nullptr, &now) == -1 && errno == EINTR) {
      }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_, before_;
  bool was_pending_ = false;
};

}  // namespace

int write_fully(int fd, std::string_view bytes, size_t& written) {
  const NoPipeSignal guard;
  written = 0;
  while (written < bytes.size()) {
    const ssize_t count = ::write(fd, bytes.data() + written, bytes.size() - written);
    if (count > 0)
      written += static_cast<size_t>(count);
    else if (count == 0 || errno != EINTR)
      return count == 0 ? ENOSPC : errno;
  }
  return 0;
}

LineFile::LineFile(const std::filesystem::path& path) : file_(File::append_to(path)), was_empty_(file_.size() <= 0) {}

LineFile::~LineFile() { flush(); }

void LineFile::write(std::string_view line) {
  buffer_ += line;
  ends_.push_back(buffer_.size());
  if (buffer_.size() >= kFlushBytes || seconds_since(flushed_at_) >= kFlushSeconds) flush();
}

void LineFile::flush() {
  flushed_at_ = Clock::now();
  if (buffer_.empty()) return;
  const int64_t before = file_.appended();
  try {
    const NoPipeSignal guard;
    file_.append(buffer_.data(), buffer_.size());
  } catch (const FileError& error) {
    // Complete lines stay. A torn one is cut off, so that later lines stay intact.
    const auto written = static_cast<size_t>(file_.appended() - before);
    const auto first_lost = std::upper_bound(ends_.begin(), ends_.end(), written);
    const size_t complete = first_lost == ends_.begin() ? 0 : *(first_lost - 1);
    truncate_torn_line(static_cast<int64_t>(written - complete));
    report_lost_lines(error.what());
    dropped_ += ends_.end() - first_lost;
  }
  ends_.clear();
  buffer_.clear();
}

void LineFile::truncate_torn_line(int64_t torn) {
  try {
    const int64_t size = file_.size();
    if (torn > 0 && size >= torn) file_.truncate(size - torn);
  } catch (const FileError&) {  // the torn line stays, and the warning is the same
  }
}

}  // namespace trainopt
