// Which host event launched what the device did.
#pragma once

#include "trace/events.h"

#include <cstdint>
#include <vector>

namespace trainopt::trace {

/// Positions in RankTrace::host, kNone where the trace does not say.
struct Launches {
  std::vector<uint32_t> call;       ///< per device event: the runtime call with its `correlation`
  std::vector<uint32_t> operation;  ///< per device event: the operation with its `External id`
  std::vector<uint32_t> caller;     ///< per host event: a runtime call's operation; empty if there are no such calls
};

/// An event without an `External id` belongs to the operation of its runtime call.
Launches find_launches(const RankTrace& trace);

}  // namespace trainopt::trace
