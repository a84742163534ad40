// How busy the machine is with other things than the comparison.
#pragma once

#include "base/clock.h"

#include <string_view>

namespace trainopt {

/// CPU seconds of all processes since the machine began, from the first line of /proc/stat: user, nice, system, interrupts and what
/// the hypervisor gave to others; 0 if it cannot be read.
double busy_cpu_seconds(std::string_view proc_stat, double ticks_per_second);

class MachineLoad {
 public:
  MachineLoad();
  /// Per cent of the machine's cores that others kept busy since the last call (or construction), `ours` CPU seconds being the
  /// comparison's. /proc/stat counts in hundredths of a second, so short times give rough figures; never below 0.
  double others_pct(double ours);

 private:
  double cores_;
  double busy_s_;
  Clock::time_point looked_at_;
};

/// CPU time of this process so far.
double own_cpu_seconds();

}  // namespace trainopt
