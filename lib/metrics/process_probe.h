// CPU and memory of this process through /proc, and the load of other processes.
#pragma once

#include "base/clock.h"
#include "metrics/catalogue.h"
#include "metrics/other_load.h"

#include <vector>

namespace trainopt {

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
