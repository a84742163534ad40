#include "metrics/watchdog.h"

#include "base/log.h"
#include "base/stop_reasons.h"
#include "base/blocked_signals.h"
#include "base/files.h"
#include "base/host_name.h"
#include "base/progress.h"
#include "base/units.h"
#include "metrics/thread_stacks.h"

#include <algorithm>
#include <ctime>
#include <future>
#include <memory>
#include <optional>

namespace trainopt {
namespace {

constexpr double kLookSeconds = 0.25;
/// Storage or the reader of standard error may be what hangs, so output that takes longer than this is skipped.
constexpr double kWriteSeconds = 5;
constexpr int kHung = static_cast<int>(ExitCode::peer);

/// Does the work in its own thread and waits for `seconds`; false if it did not end. The work must own what it uses.
bool finishes_within(double seconds, std::function<void()> work) {
  const auto done = std::make_shared<std::promise<void>>();
  const auto future = done->get_future();
  try {
    std::thread([done, work = std::move(work)] {
      work();
      done->set_value();
    }).detach();
  } catch (const std::system_error&) {  // no thread can be started, so the work is not done
    return false;
  }
  return future.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready;
}

void log_at_once(const std::string& sentence) {
  finishes_within(kWriteSeconds, [sentence] { log_error("{}", sentence); });
}

/// nullopt if the file was written, else the reason why not.
std::optional<std::string> write_in_time(const std::filesystem::path& path, const Json& json) {
  const auto problem = std::make_shared<std::string>();
  const bool ended = finishes_within(kWriteSeconds, [path, problem, text = json_text(json, 2) + "\n"] {
    try {
      write_file(path, text);
    } catch (const std::exception& error) {
      *problem = error.what();
    }
  });
  if (!ended) return fmt::format("{} could not be written within {:g} s", path.string(), kWriteSeconds);
  return problem->empty() ? std::nullopt : std::optional(*problem);
}

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

Watchdog::Watchdog(Options options) : options_(std::move(options)) {
  prepare_thread_stacks();
  const BlockedSignals blocked;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    log_warning("a hang of this run would not be noticed: no watchdog thread: {}", error.what());
  }
}

Watchdog::~Watchdog() {
  finished();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::starting(const char* stage) noexcept {
  at(stage, 0);
  starts_.store(true, std::memory_order_relaxed);
}

void Watchdog::report_to(const std::filesystem::path& run_dir) {
  const std::lock_guard lock(mutex_);
  options_.run_dir = run_dir;
}

void Watchdog::at(const char* stage, int64_t step) noexcept {
  starts_.store(false, std::memory_order_relaxed);
  stage_.store(stage, std::memory_order_relaxed);
  step_.store(step, std::memory_order_relaxed);
  beats_.store(beats_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

void Watchdog::finished() {
  const std::lock_guard lock(mutex_);
  finished_ = true;
  wake_.notify_all();
}

void Watchdog::run() {
  pthread_setname_np(pthread_self(), "watchdog");
  const double interval = std::min({kLookSeconds, options_.timeout_s / 5, options_.grace_s / 5});
  double without_progress = 0;
  uint64_t beats = 0, work = 0;
  std::optional<Clock::time_point> stop_requested_at;
  auto checked_at = Clock::now();
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::chrono::duration<double>(interval), [this] { return finished_; })) {
    const auto now = Clock::now();
    // Much more than an interval has passed if the process was stopped or the machine slept. That time does not count.
    without_progress += std::min(milliseconds_between(checked_at, now) / 1e3, 2 * interval);
    checked_at = now;
    const uint64_t seen = beats_.load(std::memory_order_acquire), work_seen = progress_made();
    if (seen != beats || (starts_.load(std::memory_order_relaxed) && work_seen != work)) without_progress = 0;
    beats = seen;
    work = work_seen;
    const int signal = options_.stop_signal ? options_.stop_signal->load() : 0;
    if (is_signal(signal) && !stop_requested_at) stop_requested_at = now;
    if (stop_requested_at && milliseconds_between(*stop_requested_at, now) / 1e3 >= options_.grace_s)
      return end_unsaved(signal);
    if (without_progress >= options_.timeout_s) return end_stuck(without_progress);
  }
}

void Watchdog::summarize(const char* status, const std::string& reason, int exit_code) {
  if (options_.rank != 0 || options_.run_dir.empty()) return;
  write_in_time(options_.run_dir / "summary.json", {{"schema_version", 1},
                                                    {"status", status},
                                                    {"reason", reason},
                                                    {"exit_code", exit_code},
                                                    {"steps", step_.load()}});
}

void Watchdog::end_stuck(double seconds) {
  const std::string stage = stage_.load();
  const int64_t step = step_.load();
  const std::string reason =
      fmt::format("no progress for {} in {} after step {}", to_text(Duration{options_.timeout_s}), stage, step);
  Json report = {
      {"schema_version", 1}, {"stage", stage},    {"step", step},       {"seconds_without_progress", seconds},
      {"host", host_name()}, {"pid", ::getpid()}, {"time", time_now()}, {"threads", Json::array()}};
  for (const ThreadStack& thread : thread_stacks()) report["threads"].push_back(to_json(thread));
  std::string where = "there is no run directory yet for the stacks of its threads: " + json_text(report["threads"]);
  if (!options_.run_dir.empty()) {
    const auto file = options_.run_dir / fmt::format("hang-rank{}.json", options_.rank);
    const auto problem = write_in_time(file, report);
    where = problem ? "the stacks of its threads are not saved: " + *problem
                    : "the stacks of its threads are in " + file.string();
  }
  summarize("failed", reason, kHung);
  log_at_once(fmt::format("{} (watchdog.timeout), so the run ends; {}", reason, where));
  options_.end(kHung);
}

void Watchdog::end_unsaved(int signal) {
  const std::string reason =
      fmt::format("stopped by signal {} before saving finished: it took longer than {} (checkpoint.grace_period)",
                  signal, to_text(Duration{options_.grace_s}));
  summarize("stopped", reason, 128 + signal);
  log_at_once(reason);
  options_.end(128 + signal);
}

}  // namespace trainopt
