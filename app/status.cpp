#include "app/status.h"

#include "base/log.h"
#include "base/shell_command.h"
#include "base/signals.h"
#include "base/status_line.h"
#include "metrics/format.h"
#include "run/signals.h"

#include <fmt/format.h>
#include <unistd.h>

namespace trainopt {
namespace {

constexpr auto kRedraw = std::chrono::seconds(1), kNextLine = std::chrono::seconds(10);

bool says_what_is_normal(const OutputOptions& output) {
  return !output.quiet && (output.log_level == "info" || output.log_level == "debug" || output.log_level == "trace");
}

std::string whole_seconds(double seconds) {
  return seconds < 60 ? fmt::format("{:.0f} s", seconds) : human_seconds(seconds);
}

constexpr const char* kStopping =
    "\ninfo: stopping after what is in progress; a second Ctrl-C ends the command at once\n";

}  // namespace

Status::Status(const OutputOptions& output, std::optional<double> limit_s)
    : shown_(says_what_is_normal(output)), on_terminal_(shown_ && has_status_line(output)), limit_s_(limit_s) {
  if (!shown_) return;
  acknowledge_stop(on_terminal_ ? kStopping : kStopping + 1);
  const BlockedSignals blocked;  // in the thread: they are for those that wait for something
  thread_ = std::thread([this] { show_until_ended(); });
}

Status::~Status() {
  if (!shown_) return;
  acknowledge_stop(nullptr);
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
  thread_.join();
  const StatusLineRemoved removed;
}

void Status::now(const std::string& what) {
  {
    const std::lock_guard lock(mutex_);
    what_ = what;
    redraw_ = on_terminal_;
  }
  if (on_terminal_) changed_.notify_one();
}

void Status::line(const std::string& text) {
  if (shown_) log_info("{}", text);
  now(text);
}

std::string Status::text() const {
  const std::string elapsed = whole_seconds(seconds_since(began_));
  constexpr size_t kWide = 60;
  if (on_terminal_ && terminal_columns(STDERR_FILENO) < kWide) return fmt::format("{} {}", elapsed, what_);
  return limit_s_ ? fmt::format("{} of at most {}: {}", elapsed, whole_seconds(*limit_s_), what_)
                  : fmt::format("{}: {}", elapsed, what_);
}

void Status::show_until_ended() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    const bool woken =
        changed_.wait_for(lock, on_terminal_ ? kRedraw : kNextLine, [this] { return ended_ || redraw_; });
    if (ended_ || (woken && !on_terminal_)) continue;
    redraw_ = false;
    const std::string line = text();
    lock.unlock();  // drawing may wait for a slow terminal, which must not keep now() waiting
    if (on_terminal_)
      show_status_line(line);
    else
      log_info("{}", line);
    lock.lock();
  }
}

std::string this_command(const OutputOptions& output, const std::vector<std::string>& without,
                         const std::vector<std::string>& more) {
  return shell_command(output.words, without, more, output.own_launcher_ranks);
}

void say_again(const OutputOptions& output) {
  if (stop_signal() != 0 && !output.quiet) log_info("to measure it again: {}", this_command(output, {"--run-dir"}));
}

}  // namespace trainopt
