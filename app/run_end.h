// How a run ended, and what it took to reach train.target.
#pragma once

#include "base/json.h"
#include "train/trainer.h"

#include <optional>
#include <string>

namespace trainopt {

struct RunEnd {
  std::string status;  ///< done, failed, stopped
  std::string reason;
  int exit_code = 0;
};

/// For a run that did not fail. `saved_step` is the step of the newest checkpoint on disk; `restarts`: how often the
/// launcher has started all ranks again.
RunEnd end_of_run(const RunOutcome& outcome, const Plan& plan, const std::optional<int64_t>& saved_step,
                  int64_t restarts);

/// {"metric", "goal", "value", "reached", "step", "samples", "training_s", "resolution_steps", "energy_j", "price"}, of
/// the whole training, without evaluations. If the target was not reached, what was spent in vain. Null without a
/// target. `samples_per_joule`: of the measured steps and what comes between them, evaluations too; null if unknown.
Json target_json(const RunOutcome& outcome, const Plan& plan, const Json& samples_per_joule);

}  // namespace trainopt
