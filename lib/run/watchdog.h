// Ends a run that makes no progress, with a report of where it hangs, instead of occupying a machine forever.
#pragma once

#include "base/clock.h"
#include "base/json.h"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace trainopt {

class Watchdog {
 public:
  struct Options {
    double timeout_s = std::numeric_limits<double>::infinity();  ///< limit without progress; time in which the whole
                                                                 ///< process was stopped does not count
    double grace_s = std::numeric_limits<double>::infinity();    ///< limit from a stop signal to finished()
    std::filesystem::path run_dir;                  ///< for reports, which are only logged while it is empty
    int64_t rank = 0;                               ///< in the report's name; only rank 0 writes the summary
    const std::atomic<int>* stop_signal = nullptr;  ///< 0 until a signal arrives; null: no signals are watched
    std::function<void(int)> end = ::_exit;         ///< called at most once, by the watchdog's thread
  };

  /// Starts watching a run that opens its data, which is the first stage of its start.
  explicit Watchdog(Options options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// The run has come to `stage` of its start. File calls and answers of servers (base/progress.h) count as progress,
  /// too, until the next at(): listing and reading many files is no hang. As at().
  void starting(const char* stage) noexcept;
  /// Reports go to this folder from now on.
  void report_to(const std::filesystem::path& run_dir);
  /// Reports progress: the run is at `stage`, after `step` complete steps. `stage` must be a string literal, because
  /// only the pointer is stored. Wait-free; call it from one thread only.
  void at(const char* stage, int64_t step) noexcept;
  /// Stops watching, once the run's results are saved. Does not return if the watchdog is already ending the process.
  void finished();

 private:
  void run();
  void end_stuck(double seconds);
  void summarize(const char* status, const std::string& reason, int exit_code);
  void end_unsaved(int signal);

  Options options_;
  std::atomic<const char*> stage_{"opening the data"};
  std::atomic<bool> starts_{true};
  std::atomic<int64_t> step_{0};
  std::atomic<uint64_t> beats_{0};
  std::mutex mutex_;  ///< held while the process is being ended; guards options_.run_dir
  std::condition_variable wake_;
  bool finished_ = false;
  std::thread thread_;
};

// The stacks of all threads of this process, for the report of a run that hangs.

struct ThreadStack {
  int id = 0;               ///< the thread id that gdb and /proc use
  std::string name, state;  ///< "loader 3"; "S", "R", "D": /proc's letters
  std::string waits_in;     ///< the kernel function, if the kernel reports it
  std::vector<std::string>
      frames;            ///< innermost first: "function+0x12 (library)", or "library+0x3f20" for addr2line -e library
  std::string no_stack;  ///< why there are no frames
};

/// The stacks of all threads, including this one. Each has a second to answer stack_signal(). One caller at a time.
std::vector<ThreadStack> thread_stacks();

Json to_json(const ThreadStack& thread);

}  // namespace trainopt
