// What limited a run, from what it measured.
#pragma once

#include "advice/limit.h"
#include "metrics/summary.h"
#include "train/trainer.h"

#include <optional>

namespace trainopt {

/// nullopt if no step was measured. `records_s`: time that the trainer waited for records to be written.
std::optional<Limit> limit_of_run(const Plan& plan, const RunOutcome& outcome, const Summary& summary,
                                  double records_s);

}  // namespace trainopt
