// Ends a run that makes no progress, with a report of where it stands, instead of keeping a machine busy with nothing.
#pragma once

#include "base/clock.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <thread>

#include <unistd.h>

namespace trainopt {

class Watchdog {
 public:
  struct Options {
    double timeout_s = std::numeric_limits<double>::infinity();  ///< without progress; time in which the whole process
                                                                 ///< was stopped does not count
    double grace_s = std::numeric_limits<double>::infinity();    ///< from a stop signal to finished()
    std::filesystem::path run_dir;
    int64_t rank = 0;                               ///< in the file's name; only rank 0 writes the summary
    const std::atomic<int>* stop_signal = nullptr;  ///< 0 until there was one; null: none is awaited
    std::function<void(int)> end = ::_exit;         ///< called once at most, by the watchdog's thread
  };

  /// Starts watching: the stage is "start" until at() says more.
  explicit Watchdog(Options options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Progress: the run is at `stage` (a literal: only the pointer is kept), after `step` whole steps. Wait-free, of one
  /// thread.
  void at(const char* stage, int64_t step) noexcept;
  /// The run's results are kept; nothing is watched any more. Does not return where the watchdog is already ending the
  /// process.
  void finished();

 private:
  void run();
  void end_stuck(double seconds);
  void end_unsaved(int signal);

  Options options_;
  std::atomic<const char*> stage_{"start"};
  std::atomic<int64_t> step_{0};
  std::atomic<uint64_t> beats_{0};
  std::mutex mutex_;  ///< held while the process is being ended
  std::condition_variable wake_;
  bool finished_ = false;
  std::thread thread_;
};

}  // namespace trainopt
