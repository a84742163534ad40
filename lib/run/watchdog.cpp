#include "run/watchdog.h"

#include "base/clock.h"
#include "base/files/files.h"
#include "base/host_name.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signals.h"
#include "base/units.h"

#include <fmt/format.h>
#include <sys/syscall.h>

#include <cxxabi.h>
#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <thread>

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

/// Where an interrupted thread stores its stack. Global because a signal handler can reach nothing else.
struct StackRequest {
  static constexpr pid_t kNobody = 0, kWriting = -1, kWritten = -2;
  std::atomic<pid_t> wanted{kNobody};  ///< the thread whose stack is requested, or one of the above
  std::array<void*, 256> frames;
  int count = 0;
  const void* interrupted_at = nullptr;
};
StackRequest slot;
static_assert(std::atomic<pid_t>::is_always_lock_free);

void record_stack(int, siginfo_t*, void* context) {
  const int error = errno;
  auto me = static_cast<pid_t>(::syscall(SYS_gettid));
  if (slot.wanted.compare_exchange_strong(
          me, StackRequest::kWriting)) {  // fails for a late answer, whose request has expired
    slot.interrupted_at = reinterpret_cast<const void*>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
    slot.count = ::backtrace(slot.frames.data(), static_cast<int>(slot.frames.size()));
    slot.wanted.store(StackRequest::kWritten, std::memory_order_release);
  }
  errno = error;
}

/// Call once, early: loads what taking stacks needs and permanently installs the handler of stack_signal().
void prepare_thread_stacks() {
  void* frame = nullptr;
  ::backtrace(&frame, 1);  // the first call loads a library, which a signal handler must not do
  struct sigaction action {};
  action.sa_sigaction = record_stack;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&action.sa_mask);
  ::sigaction(stack_signal(), &action, nullptr);  // permanent: without it, a late signal would end the process
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

namespace {

constexpr double kAnswerSeconds = 1.0;

std::string text_of(int thread, const char* file) {
  std::ifstream stream(fmt::format("/proc/self/task/{}/{}", thread, file));
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// The word after `field`, such as "State", in the text of /proc's status.
std::string status_word(const std::string& status, const std::string& field) {
  const size_t at = status.find("\n" + field + ":\t");
  if (at == std::string::npos) return {};
  const size_t begin = at + field.size() + 3;
  return status.substr(begin, status.find_first_of(" \n", begin) - begin);
}

bool blocks_stack_signal(const std::string& status) {
  const std::string mask = status_word(status, "SigBlk");
  uint64_t bits = 0;
  std::from_chars(mask.data(), mask.data() + mask.size(), bits, 16);
  return bits >> (stack_signal() - 1) & 1;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : name;
}

std::string frame_text(const char* address) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || !info.dli_fname) return fmt::format("{}", static_cast<const void*>(address));
  const char* slash = std::strrchr(info.dli_fname, '/');
  const char* library = slash ? slash + 1 : info.dli_fname;
  if (info.dli_sname)
    return fmt::format("{}+{:#x} ({})", demangled(info.dli_sname), address - static_cast<const char*>(info.dli_saddr),
                       library);
  return fmt::format("{}+{:#x}", library, address - static_cast<const char*>(info.dli_fbase));
}

std::vector<std::string> frame_texts() {
  const auto end = slot.frames.begin() + slot.count;
  auto frame = std::find(slot.frames.begin(), end,
                         slot.interrupted_at);  // frames before it belong to the signal handler
  if (frame == end) frame = slot.frames.begin();
  std::vector<std::string> texts;
  // All but the innermost are return addresses; the byte before is still in the call.
  for (; frame != end; ++frame) texts.push_back(frame_text(static_cast<const char*>(*frame) - (texts.empty() ? 0 : 1)));
  return texts;
}

/// nullopt if the thread answered, else the reason why not.
std::optional<std::string> ask(pid_t thread, const std::string& state) {
  if (slot.wanted == StackRequest::kWriting) return "another thread is still storing its stack";
  slot.wanted = thread;
  if (::syscall(SYS_tgkill, ::getpid(), thread, stack_signal()) != 0) {
    slot.wanted = StackRequest::kNobody;
    return std::string(errno == ESRCH ? "it has exited" : std::strerror(errno));
  }
  // A thread in an uninterruptible wait does not receive the signal, but the wait may end soon.
  const double timeout_s = state == "D" ? kAnswerSeconds / 10 : kAnswerSeconds;
  for (const auto requested_at = Clock::now(); seconds_since(requested_at) < timeout_s;
       std::this_thread::sleep_for(std::chrono::milliseconds(1)))
    if (slot.wanted.load(std::memory_order_acquire) == StackRequest::kWritten) return std::nullopt;
  if (slot.wanted.compare_exchange_strong(thread, StackRequest::kNobody))
    return fmt::format("it did not answer within {:g} s", timeout_s);
  return slot.wanted.load(std::memory_order_acquire) == StackRequest::kWritten
             ? std::nullopt
             : std::optional<std::string>("it did not finish storing its stack");
}

ThreadStack stack_of(pid_t id) {
  ThreadStack thread{.id = id,
                     .name = text_of(id, "comm"),
                     .state = {},
                     .waits_in = text_of(id, "wchan"),
                     .frames = {},
                     .no_stack = {}};
  if (thread.name.ends_with('\n')) thread.name.pop_back();
  if (thread.waits_in == "0") thread.waits_in.clear();
  const std::string status = text_of(id, "status");
  thread.state = status_word(status, "State");
  if (blocks_stack_signal(status))
    thread.no_stack = "it blocks all signals";
  else if (const auto reason = ask(id, thread.state))
    thread.no_stack = *reason;
  else
    thread.frames = frame_texts();
  return thread;
}

}  // namespace

std::vector<ThreadStack> thread_stacks() {
  prepare_thread_stacks();
  std::vector<pid_t> ids;
  if (DIR* tasks = ::opendir("/proc/self/task")) {
    while (const dirent* entry = ::readdir(tasks))
      if (const pid_t id = std::atoi(entry->d_name); id > 0) ids.push_back(id);
    ::closedir(tasks);
  }
  std::vector<ThreadStack> threads;
  for (const pid_t id : ids) threads.push_back(stack_of(id));
  return threads;
}

Json to_json(const ThreadStack& thread) {
  Json json = {{"tid", thread.id}, {"name", thread.name}, {"state", thread.state}};
  if (!thread.waits_in.empty()) json["waits_in"] = thread.waits_in;
  json["stack"] = thread.frames;
  if (!thread.no_stack.empty()) json["no_stack"] = thread.no_stack;
  return json;
}

}  // namespace trainopt
