// Ends a run that makes no progress, with a report of where it hangs, instead of occupying a machine forever.
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
    double timeout_s = std::numeric_limits<double>::infinity();  ///< limit without progress; time in which the whole
                                                                 ///< process was stopped does not count
    double grace_s = std::numeric_limits<double>::infinity();    ///< limit from a stop signal to finished()
    std::filesystem::path run_dir;
    int64_t rank = 0;                               ///< in the report's name; only rank 0 writes the summary
    const std::atomic<int>* stop_signal = nullptr;  ///< 0 until a signal arrives; null: no signals are watched
    std::function<void(int)> end = ::_exit;         ///< called at most once, by the watchdog's thread
  };

  /// Starts watching. The stage is "start" until the first at().
  explicit Watchdog(Options options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Reports progress: the run is at `stage`, after `step` complete steps. `stage` must be a string literal, because
  /// only the pointer is stored. Wait-free; call it from one thread only.
  void at(const char* stage, int64_t step) noexcept;
  /// Stops watching, once the run's results are saved. Does not return if the watchdog is already ending the process.
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
