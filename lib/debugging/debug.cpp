#include "debugging/debug.h"

#include "debugging/anomaly.h"
#include "debugging/wait_finder.h"

namespace trainopt {

void add_debug(Plan& plan, const DebugConfig& config) {
  if (config.find_syncs) add_find_syncs(plan);
  if (config.anomaly) add_anomaly(plan);
}

}  // namespace trainopt
