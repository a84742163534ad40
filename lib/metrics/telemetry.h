// The thread that watches the hardware: GPU by NVML, CPU and memory of this process by /proc. It never blocks a step and never fails
// a run; what it cannot measure stays null and has a reason.
#pragma once

#include "base/clock.h"
#include "metrics/gpu_probe.h"
#include "metrics/line_file.h"
#include "metrics/other_load.h"
#include "metrics/record.h"

#include <c10/core/Device.h>

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace trainopt {

struct TelemetryOptions {
  c10::Device device = c10::Device(c10::kCPU);   ///< whose GPU to watch
  double interval_s = 0.1;
  std::filesystem::path file = {};               ///< telemetry.jsonl, a line a sample; empty: none
  std::string nvml_library = kNvmlLibrary;
};

/// Values of the metrics that telemetry measures, at a moment.
struct TelemetrySample {
  Clock::time_point at;
  Values values;
};

/// CPU time and memory of this process, and CPU time of others, since the last look.
class ProcessProbe {
 public:
  ProcessProbe();
  void sample(Values& values);

 private:
  explicit ProcessProbe(const std::vector<int>& cpus);

  double cores_;
  Clock::time_point looked_at_;
  double cpu_seconds_ = 0;
  OtherLoad others_;
};

class Telemetry {
 public:
  /// Starts the thread. Throws UserError(storage) only if `file` cannot be opened.
  explicit Telemetry(TelemetryOptions options);
  ~Telemetry();

  /// The mean (gpu_throttle, memory: the largest) of the samples taken in the window; the latest before its end if it holds none.
  TelemetrySample between(Clock::time_point begin, Clock::time_point end) const;
  /// Puts between()'s values into the row's empty places.
  void fill(Row& row) const;
  /// Metrics without a value and why; for environment.json.
  Reasons reasons() const;
  /// The thread looks at nothing until resume(), which looks at once: for trainings that take turns.
  void pause();
  void resume();
  /// Ends the thread; what was measured stays readable.
  void stop();

 private:
  void run();
  void take_sample(GpuProbe* gpu, ProcessProbe& process, Clock::time_point started);

  TelemetryOptions options_;
  std::unique_ptr<LineFile> file_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false, paused_ = false;
  std::deque<TelemetrySample> samples_;
  Reasons reasons_;
  std::thread thread_;
};

}  // namespace trainopt
