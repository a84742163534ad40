#include "metrics/line_file.h"

#include "base/error.h"

#include <spdlog/spdlog.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace trainopt {
namespace {

constexpr double kFlushSeconds = 1.0;
constexpr size_t kFlushBytes = 64 << 10;

/// Writing to a closed pipe raises SIGPIPE in the writing thread: held back for the time of the write and, if it came, taken away.
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
      while (sigtimedwait(&pipe_, nullptr, &now) == -1 && errno == EINTR) {}
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
    if (count > 0) written += static_cast<size_t>(count);
    else if (count == 0 || errno != EINTR) return count == 0 ? ENOSPC : errno;
  }
  return 0;
}

LineFile::LineFile(const std::filesystem::path& path) : path_(path) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) throw UserError(fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)), ExitCode::storage);
  struct stat status {};
  was_empty_ = ::fstat(fd_, &status) != 0 || status.st_size == 0;
}

LineFile::~LineFile() {
  flush();
  ::close(fd_);
}

void LineFile::write(std::string_view line) {
  buffer_ += line;
  if (buffer_.size() >= kFlushBytes || seconds_since(flushed_at_) >= kFlushSeconds) flush();
}

void LineFile::flush() {
  flushed_at_ = Clock::now();
  if (buffer_.empty()) return;
  size_t written = 0;
  if (const int error = write_fully(fd_, buffer_, written)) {
    // Whole lines stay; what follows the last newline written is torn and cut off, so that later lines stand on their own.
    const size_t newline = written == 0 ? std::string::npos : buffer_.rfind('\n', written - 1);
    const size_t kept = newline == std::string::npos ? 0 : newline + 1;
    struct stat status {};
    if (written > kept && ::fstat(fd_, &status) == 0 && S_ISREG(status.st_mode))
      if (::ftruncate(fd_, status.st_size - static_cast<off_t>(written - kept)) != 0) errno = 0;
    if (dropped_ == 0) spdlog::warn("cannot write {}: {}; training goes on, lines are dropped", path_.string(), std::strerror(error));
    dropped_ += std::count(buffer_.begin() + static_cast<std::ptrdiff_t>(kept), buffer_.end(), '\n');
  }
  buffer_.clear();
}

}  // namespace trainopt
