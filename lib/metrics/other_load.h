// What others do on the CPUs that this process may use.
#pragma once

#include "base/clock.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace trainopt {

/// CPU seconds that the CPUs of `cpus` (by number) have been busy since the machine began, from the text of /proc/stat:
/// user, nice, system, interrupts, and what the hypervisor gave to other machines. nullopt: it does not have them all.
std::optional<double> busy_seconds(std::string_view proc_stat, const std::vector<int>& cpus, double ticks_per_second);

/// The same now, from the file.
std::optional<double> busy_seconds(const std::vector<int>& cpus);

/// CPU time of this process so far.
double process_cpu_seconds();

/// CPU seconds of all processes on `cpus` CPUs, less one's own, as a share of what the CPUs could do.
class OtherLoad {
 public:
  using Busy = std::function<std::optional<double>()>;
  /// `busy` is asked now and every half second: the file is long on a large machine. `own_seconds`: CPU time of this
  /// process so far.
  OtherLoad(size_t cpus, Busy busy, double own_seconds, Clock::time_point now);
  /// In per cent, over the last half second or more. nullopt: so much has not passed yet, or `busy` does not say.
  std::optional<double> sample(double own_seconds, Clock::time_point now);

 private:
  double cpus_;
  Busy busy_;
  double own_seconds_;
  Clock::time_point looked_at_;
  std::optional<double> busy_seconds_, pct_;
};

}  // namespace trainopt
