// A thread that samples the hardware: the GPU through NVML, this process's CPU and memory through /proc. It never
// blocks a step and never fails a run. Values that it cannot measure stay null and have a reason.
#pragma once

#include "base/clock.h"
#include "metrics/hardware/energy.h"
#include "metrics/hardware/gpu_probe.h"
#include "metrics/hardware/process_probe.h"
#include "metrics/line_file.h"
#include "metrics/record.h"

#include <c10/core/Device.h>

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace trainopt {

struct TelemetryOptions {
  c10::Device device = c10::Device(c10::kCPU);  ///< the GPU to sample, if it is one
  double interval_s = 0.1;
  double stop_timeout_s = 5;        ///< how long stop() waits for a driver that does not respond
  std::filesystem::path file = {};  ///< telemetry.jsonl, one line per sample; empty: no file
  std::string nvml_library = kNvmlLibrary;
  std::string pci_bus_id = {};  ///< the GPU to sample, set by tests; empty: `device`'s
  /// PCI bus ids of the GPUs whose energy counts, those of other ranks included; empty: only the sampled GPU.
  std::vector<std::string> energy_gpus = {};
  std::filesystem::path powercap = EnergyOptions().powercap;
};

/// The metrics that telemetry measures, at one moment.
struct TelemetrySample {
  Clock::time_point at;
  Values values;
};

/// The telemetry samples of one step as one value. `values` must not be empty.
double combined(Aggregate aggregate, std::span<const double> values);

class Telemetry {
 public:
  /// Starts the thread. Throws UserError(storage) only if `file` cannot be opened.
  explicit Telemetry(TelemetryOptions options);
  ~Telemetry();

  /// The samples in the window, combined by each metric's Aggregate; the latest earlier sample if there are none.
  TelemetrySample between(Clock::time_point begin, Clock::time_point end) const;
  /// Fills the row's empty columns with between()'s values, except that energy_j has every reading up to the step's end
  /// that no earlier row got, so that the rows of a run contain all energy.
  void fill(StepRecord& row);
  /// What energy_j includes; nullopt if nothing can be read, or until the thread has looked.
  std::optional<EnergySource> energy_source() const;
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
  std::optional<double> take_energy(Clock::time_point end);

  class Watch;
  std::shared_ptr<Watch> watch_;  ///< shared with the thread, which may outlive this object
  std::thread thread_;
};

}  // namespace trainopt
