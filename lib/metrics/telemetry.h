// The thread that watches the hardware: GPU by NVML, CPU and memory of this process by /proc. It never blocks a step
// and never fails a run; what it cannot measure stays null and has a reason.
#pragma once

#include "base/clock.h"
#include "metrics/gpu_probe.h"
#include "metrics/line_file.h"
#include "metrics/other_load.h"
#include "metrics/record.h"

#include <c10/core/Device.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>

namespace trainopt {

struct TelemetryOptions {
  c10::Device device = c10::Device(c10::kCPU);  ///< whose GPU to watch
  double interval_s = 0.1;
  double patience_s = 5;            ///< of stop(), with a driver that does not answer
  std::filesystem::path file = {};  ///< telemetry.jsonl, a line a sample; empty: none
  std::string nvml_library = kNvmlLibrary;
  std::string pci_bus_id = {};  ///< of the GPU to watch; empty: device's, none on the CPU. Tests name one of their own
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
  /// cpu_util_pct is next about the time from now on.
  void begin_stretch();

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

  /// The mean (gpu_throttle, memory: the largest) of the samples taken in the window; the latest before its end if it
  /// holds none.
  TelemetrySample between(Clock::time_point begin, Clock::time_point end) const;
  /// Fills the row's empty columns with between()'s values.
  void fill(StepRecord& row) const;
  /// Metrics without a value and why; for environment.json.
  Reasons reasons() const;
  /// Lines that a full disk cost; known after stop().
  int64_t dropped_lines() const;
  /// The thread looks at nothing until resume(), which looks at once: for trainings that take turns.
  void pause();
  void resume();
  /// Ends the thread; what was measured stays readable. A driver that does not answer in `patience_s` is left behind
  /// with a warning.
  void stop();

 private:
  class Watch;
  std::shared_ptr<Watch> watch_;  ///< the thread's too: it may outlive this object
  std::thread thread_;
};

}  // namespace trainopt
