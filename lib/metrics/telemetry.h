// A thread that samples the hardware: the GPU through NVML, this process's CPU and memory through /proc. It never
// blocks a step and never fails a run. Values that it cannot measure stay null and have a reason.
#pragma once

#include "base/clock.h"
#include "metrics/gpu_probe.h"
#include "metrics/line_file.h"
#include "metrics/other_load.h"
#include "metrics/record.h"

#include <c10/core/Device.h>

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <thread>

namespace trainopt {

struct TelemetryOptions {
  c10::Device device = c10::Device(c10::kCPU);  ///< the GPU to sample, if it is one
  double interval_s = 0.1;
  double stop_timeout_s = 5;        ///< how long stop() waits for a driver that does not respond
  std::filesystem::path file = {};  ///< telemetry.jsonl, one line per sample; empty: no file
  std::string nvml_library = kNvmlLibrary;
  std::string pci_bus_id = {};  ///< of the GPU to sample, set by tests; empty: that of `device`
};

/// The metrics that telemetry measures, at one moment.
struct TelemetrySample {
  Clock::time_point at;
  Values values;
};

/// The telemetry samples of one step as one value. `values` must not be empty.
double combined(Aggregate aggregate, std::span<const double> values);

/// Measures memory of this process, and CPU time of this process and of others since the last sample.
class ProcessProbe {
 public:
  ProcessProbe();
  void sample(Values& values);
  /// The next cpu_util_pct covers the time from now on.
  void restart_interval();

 private:
  explicit ProcessProbe(const std::vector<int>& cpus);

  double cores_;
  Clock::time_point sampled_at_;
  double cpu_seconds_ = 0;
  OtherLoad others_;
};

class Telemetry {
 public:
  /// Starts the thread. Throws UserError(storage) only if `file` cannot be opened.
  explicit Telemetry(TelemetryOptions options);
  ~Telemetry();

  /// The samples in the window, combined by each metric's Aggregate; the latest earlier sample if there are none.
  TelemetrySample between(Clock::time_point begin, Clock::time_point end) const;
  /// Fills the row's empty columns with between()'s values.
  void fill(StepRecord& row) const;
  /// Metrics without a value, with the reason; for environment.json.
  Reasons reasons() const;
  /// Lines dropped because of a full disk; known after stop().
  int64_t dropped_lines() const;
  /// Stops sampling until resume(), which takes a sample at once. For trainings that take turns.
  void pause();
  void resume();
  /// Ends the thread; its measurements stay readable. Abandons the thread with a warning if the driver does not respond
  /// within `stop_timeout_s`.
  void stop();

 private:
  class Watch;
  std::shared_ptr<Watch> watch_;  ///< shared with the thread, which may outlive this object
  std::thread thread_;
};

}  // namespace trainopt
