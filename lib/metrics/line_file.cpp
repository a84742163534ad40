#include "metrics/line_file.h"

#include "base/files/files.h"
#include "base/log.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <string_view>

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

namespace {

constexpr std::string_view kJsonStart = "{\"step\":";
constexpr size_t kPieceBytes = size_t{1} << 20;  // records of a long run are larger than memory should be

/// nullopt for a header and for any other line without a step.
std::optional<int64_t> step_of(std::string_view line) {
  if (line.starts_with(kJsonStart)) line.remove_prefix(kJsonStart.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step);
  return error == std::errc() ? std::optional(step) : std::nullopt;
}

/// Bytes of the lines to keep. `repeated`: the line behind them is the checkpoint's own step, which the last process
/// recorded only because it was its last.
int64_t end_of_kept(File& file, int64_t step, int64_t every_n_steps, bool& repeated) {
  int64_t kept = 0;
  std::string text;  // from `kept` on
  for (std::string piece(kPieceBytes, '\0'); const size_t got = file.read(piece.data(), piece.size());) {
    text.append(piece, 0, got);
    size_t begin = 0;
    for (size_t newline; (newline = text.find('\n', begin)) != std::string::npos; begin = newline + 1) {
      const auto found = step_of(std::string_view(text).substr(begin, newline - begin));
      const bool later = found && *found > step;  // lines are in the order of steps
      const bool only_last = found && *found == step && step > 1 && step % every_n_steps != 0;
      repeated = only_last && kept + static_cast<int64_t>(newline) + 1 == file.size();
      if (later || only_last) return kept + static_cast<int64_t>(begin);
    }
    kept += static_cast<int64_t>(begin);
    text.erase(0, begin);
  }
  return kept;  // without a torn last line
}

/// Appends what follows `from` to what earlier resumes from this step have put there.
void keep_aside(const File& file, int64_t from, int64_t step) {
  auto aside = file.path();
  aside += fmt::format(".before-step-{:08}", step);
  File kept = File::append_to(aside);
  std::string piece(kPieceBytes, '\0');
  char last = '\n';
  for (size_t got; (got = file.read_at(from, piece.data(), piece.size())) > 0; from += static_cast<int64_t>(got)) {
    kept.append(piece.data(), got);
    last = piece[got - 1];
  }
  if (last != '\n') kept.append("\n", 1);
  kept.sync();
  kept.close();
  sync_folder(folder_of(aside));  // before the lines leave their file
  log_info("the lines of {} after step {} are kept in {}", file.path().filename().string(), step,
           aside.filename().string());
}

}  // namespace

void remove_lines_after(const std::filesystem::path& path, int64_t step, int64_t every_n_steps) {
  if (kind_of(path) == PathKind::absent) return;
  File file = File::open(path, ExitCode::storage);
  bool repeated = false;
  const int64_t kept = end_of_kept(file, step, every_n_steps, repeated);
  if (kept == file.size()) return;
  if (!repeated) keep_aside(file, kept, step);
  File whole = File::append_to(path);
  whole.truncate(kept);
  whole.sync();
  whole.close();
}

}  // namespace trainopt
