#include "run/watchdog.h"

#include "base/files/file_calls.h"
#include "base/json.h"
#include "base/signals.h"
#include "support/catch.h"
#include "support/sanitized.h"
#include "support/temporary_folder.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <future>
#include <set>

using namespace trainopt;

namespace {

void sleep_ms(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

/// A flag to wait for. Not a std::future, because ThreadSanitizer delivers signals only in waits that it intercepts.
class Flag {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    awaited_ = true;  // the lock is held until the wait itself releases it
    changed_.wait(lock, [this] { return set_; });
  }
  bool is_awaited() {
    const std::lock_guard lock(mutex_);
    return awaited_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false, awaited_ = false;
};

/// A function whose address range is known well enough to find it in a stack.
__attribute__((noinline)) void wait_in_a_named_function(Flag& flag) {
  flag.wait();
  asm volatile("" ::: "memory");  // prevents a tail call above
}

bool sleeps(int thread) {
  std::ifstream file(fmt::format("/proc/self/task/{}/status", thread));
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("State:")) return line.find("S (") != std::string::npos;
  return false;
}

/// A thread with a name and a known id, blocked in wait_in_a_named_function().
class BlockedThread {
 public:
  enum class Signals { heard, deaf, all_blocked };
  BlockedThread(const char* name, Signals signals) {
    std::promise<int> told_id;
    auto known = told_id.get_future();
    const auto start = [&] {
      thread_ = std::thread([this, &told_id, name, signals] {
        pthread_setname_np(pthread_self(), name);
        sigset_t all;
        sigfillset(&all);
        if (signals == Signals::all_blocked) pthread_sigmask(SIG_SETMASK, &all, nullptr);
        told_id.set_value(static_cast<int>(::syscall(SYS_gettid)));
        wait_in_a_named_function(may_go_);
      });
    };
    if (signals == Signals::deaf) {
      const BlockedSignals deaf;
      start();
    } else {
      start();
    }
    id = known.get();
    for (const auto begin = Clock::now(); !(may_go_.is_awaited() && sleeps(id)) && seconds_since(begin) < 60;)
      sleep_ms(1);
  }
  ~BlockedThread() {
    may_go_.set();
    thread_.join();
  }
  int id = 0;

 private:
  Flag may_go_;
  std::thread thread_;
};

bool is_in_named_function(const std::string& frame) {
  Dl_info info{};
  REQUIRE(::dladdr(reinterpret_cast<const void*>(&wait_in_a_named_function), &info) != 0);
  const auto start =
      reinterpret_cast<const char*>(&wait_in_a_named_function) - static_cast<const char*>(info.dli_fbase);
  const size_t plus = frame.find("+0x");
  if (!frame.starts_with("test_watchdog+0x")) return false;
  const auto offset = static_cast<std::ptrdiff_t>(std::stoull(frame.substr(plus + 1), nullptr, 16));
  return offset > start && offset < start + (kSanitized ? 8000 : 400);
}

bool holds_named_function(const std::vector<std::string>& frames) {
  return std::any_of(frames.begin(), frames.end(), is_in_named_function);
}

ThreadStack stack_of(const std::vector<ThreadStack>& threads, int id) {
  const auto found =
      std::find_if(threads.begin(), threads.end(), [id](const ThreadStack& thread) { return thread.id == id; });
  REQUIRE(found != threads.end());
  return *found;
}

/// A watchdog that records the exit code instead of ending the process.
struct Watched {
  explicit Watched(double timeout_s, double grace_s = 1e9) : watchdog(options(timeout_s, grace_s)) {
    watchdog.report_to(folder.path());
  }
  Watchdog::Options options(double timeout_s, double grace_s) {
    return {
        .timeout_s = timeout_s, .grace_s = grace_s, .stop_signal = &stop, .end = [this](int code) { ended = code; }};
  }
  int wait_for_end(double seconds = 20) const {
    for (const auto begin = Clock::now(); ended == -1 && seconds_since(begin) < seconds;) sleep_ms(2);
    return ended;
  }
  Json json(const std::string& name) const { return Json::parse(folder.text(name)); }

  TemporaryFolder folder;
  std::atomic<int> stop{0}, ended{-1};
  Watchdog watchdog;
};

}  // namespace

TEST_CASE("every thread has a stack: one that receives signals, one that blocks them, and the caller") {
  const BlockedThread hearing("hears", BlockedThread::Signals::heard), deaf("is deaf", BlockedThread::Signals::deaf);
  const auto threads = thread_stacks();
  for (const auto& [id, name] : {std::pair(hearing.id, "hears"), std::pair(deaf.id, "is deaf")}) {
    const ThreadStack thread = stack_of(threads, id);
    INFO(to_json(thread).dump(1));
    CHECK(thread.name == name);
    CHECK(thread.state == "S");
    CHECK(holds_named_function(thread.frames));
    CHECK(thread.frames.front().find("libc.so.6") != std::string::npos);  // not the signal's handler
    CHECK(thread.no_stack.empty());
  }
  CHECK(!stack_of(threads, ::getpid()).frames.empty());
}

TEST_CASE("a thread that blocks even the stack signal is listed with the reason, without waiting for it") {
  const BlockedThread blocked("hears nothing", BlockedThread::Signals::all_blocked),
      after("hears", BlockedThread::Signals::heard);
  double quickest = 60;
  std::vector<ThreadStack> threads;
  for (int time = 0; time < 5 && quickest >= 0.9;
       ++time) {  // a busy machine is slow sometimes; waiting for an answer is slow always
    const auto begin = Clock::now();
    threads = thread_stacks();
    quickest = std::min(quickest, seconds_since(begin));
  }
  CHECK(quickest < 0.9);
  const ThreadStack thread = stack_of(threads, blocked.id);
  CHECK(thread.frames.empty());
  CHECK(thread.no_stack == "it blocks all signals");
  CHECK(holds_named_function(stack_of(threads, after.id).frames));
}

TEST_CASE("a run without progress ends and writes its stage and all its threads to a file") {
  const BlockedThread blocked("loader 0", BlockedThread::Signals::deaf);
  Watched run(0.2);
  run.watchdog.at("waiting for data", 17);
  const auto begin = Clock::now();
  REQUIRE(run.wait_for_end() == 7);
  CHECK(seconds_since(begin) > 0.15);
  const Json hang = run.json("hang-rank0.json");
  INFO(hang.dump(1));
  CHECK(hang.at("schema_version") == 1);
  CHECK(hang.at("stage") == "waiting for data");
  CHECK(hang.at("step") == 17);
  CHECK(hang.at("seconds_without_progress").get<double>() >= 0.2);
  CHECK(hang.at("pid") == ::getpid());
  CHECK(hang.at("host").get<std::string>().size() > 0);
  CHECK(hang.at("time").get<std::string>().ends_with("Z"));
  std::set<int> ids;
  for (const Json& thread : hang.at("threads")) {
    ids.insert(thread.at("tid").get<int>());
    CHECK((!thread.at("stack").empty() || thread.contains("no_stack")));
    if (thread.at("tid") != blocked.id) continue;
    CHECK(thread.at("name") == "loader 0");
    CHECK(holds_named_function(thread.at("stack").get<std::vector<std::string>>()));
  }
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    CHECK(ids.contains(std::stoi(task.path().filename())));
  const Json summary = run.json("summary.json");
  CHECK(summary == Json{{"schema_version", 1},
                        {"status", "failed"},
                        {"reason", "no progress for 200ms in waiting for data after step 17"},
                        {"exit_code", 7},
                        {"steps", 17}});
}

TEST_CASE("progress keeps the watchdog quiet even if stage and step do not change") {
  Watched run(1);  // longer than the scheduler should keep this thread from running
  for (const auto begin = Clock::now(); seconds_since(begin) < 2.5;) {
    run.watchdog.at("forward", 1);
    sleep_ms(5);
  }
  CHECK(run.ended == -1);
  CHECK(!std::filesystem::exists(run.folder / "hang-rank0.json"));
  CHECK(run.wait_for_end() == 7);  // without progress it ends the run
}

TEST_CASE("file calls are progress while a run starts, and no longer") {
  Watched run(1);
  const auto reads_files = [&](double seconds) {
    for (const auto begin = Clock::now(); seconds_since(begin) < seconds && run.ended == -1; sleep_ms(5))
      kind_of(run.folder.path());
  };
  reads_files(1.5);
  CHECK(run.ended == -1);
  run.watchdog.starting("reading the checkpoint");
  reads_files(1.5);
  CHECK(run.ended == -1);
  run.watchdog.at("forward", 1);
  reads_files(20);
  CHECK(run.ended == 7);
}

TEST_CASE("a start that hangs before there is a run directory writes no file") {
  std::atomic<int> ended{-1};
  Watchdog watchdog({.timeout_s = 0.2, .end = [&](int code) { ended = code; }});
  for (const auto begin = Clock::now(); ended == -1 && seconds_since(begin) < 20;) sleep_ms(2);
  CHECK(ended == 7);
  CHECK(!std::filesystem::exists("hang-rank0.json"));
  CHECK(!std::filesystem::exists("summary.json"));
}

TEST_CASE("a finished run is no longer watched") {
  Watched run(0.5, 0.5);
  run.watchdog.finished();
  run.stop = SIGTERM;
  sleep_ms(1200);
  CHECK(run.ended == -1);
  CHECK(!std::filesystem::exists(run.folder / "summary.json"));
}

TEST_CASE("a run that does not save in time after a signal is ended with that reason") {
  Watched run(1e9, 0.3);
  sleep_ms(500);
  CHECK(run.ended == -1);
  run.watchdog.at("forward", 5);
  const auto asked = Clock::now();
  run.stop = SIGTERM;
  while (run.ended == -1 && seconds_since(asked) < 20) {  // progress does not extend the time
    run.watchdog.at("forward", 5);
    sleep_ms(2);
  }
  CHECK(run.ended == 128 + SIGTERM);
  CHECK(seconds_since(asked) >= 0.25);
  CHECK(run.json("summary.json") ==
        Json{{"schema_version", 1},
             {"status", "stopped"},
             {"reason",
              "stopped by signal 15 before saving finished: it took longer than 300ms (checkpoint.grace_period)"},
             {"exit_code", 143},
             {"steps", 5}});
}

TEST_CASE("the run ends even if its report cannot be written") {
  std::atomic<int> ended{-1};
  Watchdog watchdog({.timeout_s = 0.1, .run_dir = "/nowhere/at/all", .end = [&](int code) { ended = code; }});
  for (const auto begin = Clock::now(); ended == -1 && seconds_since(begin) < 20;) sleep_ms(2);
  CHECK(ended == 7);
}

TEST_CASE("time in which the whole process was stopped does not count") {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const Watchdog watchdog({.timeout_s = 3, .run_dir = folder.path()});
    while (true) ::pause();
  }
  sleep_ms(300);
  ::kill(child, SIGSTOP);
  sleep_ms(3300);
  ::kill(child, SIGCONT);
  sleep_ms(300);
  const bool lives = ::waitpid(child, nullptr, WNOHANG) == 0;
  CHECK(lives);
  int status = 0;
  if (lives) REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 7);  // without progress it still ends
}

TEST_CASE("a watchdog is destroyed without waiting for its interval") {
  double quickest = 60;
  for (int time = 0; time < 5 && quickest >= 0.15; ++time) {
    std::optional<Watched> run(std::in_place, 1800);
    sleep_ms(30);  // now its thread sleeps
    const auto begin = Clock::now();
    run.reset();
    quickest = std::min(quickest, seconds_since(begin));
  }
  CHECK(quickest < 0.15);
}
