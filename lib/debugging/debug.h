// The recipe's `debug`: checks on demand.
#pragma once

#include "train/config.h"

namespace trainopt {

struct Plan;

/// Adds the checks to the plan; without any the plan stays as it is. Call after everything that fills slots. Throws
/// UserError if a check cannot work with the plan.
void add_debug(Plan& plan, const DebugConfig& config);

}  // namespace trainopt
