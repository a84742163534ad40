// CPU and memory of this process through /proc, and the load of other processes.
#pragma once

#include "base/clock.h"
#include "metrics/catalogue.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace trainopt {

// CPU load of other processes on the CPUs that this process may use.

/// Seconds that the CPUs numbered `cpus` have been busy since boot, from the text of /proc/stat: user, nice, system,
/// interrupts, and time stolen by the hypervisor for other machines. nullopt if the text lacks any of the CPUs.
std::optional<double> busy_seconds(std::string_view proc_stat, const std::vector<int>& cpus, double ticks_per_second);

/// Reads /proc/stat now.
std::optional<double> busy_seconds(const std::vector<int>& cpus);

/// CPU time of this process so far.
double process_cpu_seconds();

/// CPU time of all processes on `cpus` CPUs except this one, as a share of the CPUs' capacity.
class OtherLoad {
 public:
  using Busy = std::function<std::optional<double>()>;
  /// Calls `busy` now, and later at most every half second because /proc/stat is long on a large machine.
  /// `own_seconds`: CPU time of this process so far.
  OtherLoad(size_t cpus, Busy busy, double own_seconds, Clock::time_point now);
  /// Percentage over the last half second or more. nullopt if less time has passed or `busy` has no value.
  std::optional<double> sample(double own_seconds, Clock::time_point now);

 private:
  double cpus_;
  Busy busy_;
  double own_seconds_;
  Clock::time_point sampled_at_;
  std::optional<double> busy_seconds_, pct_;
};

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

}  // namespace trainopt
