// `debug.anomaly`: the operation and the unit in which non-finite values begin, or whose backward failed.
#pragma once

namespace trainopt {

struct Plan;

/// Wraps the runner, the precision and the profiler's slot, and makes every step check its loss and gradients. Throws
/// UserError if steps are replayed, because then no operation runs.
void add_anomaly(Plan& plan);

}  // namespace trainopt
