// A plan as text for people and as JSON for programs.
#pragma once

#include "base/json.h"
#include "train/plan.h"

#include <string>

namespace trainopt {

/// Several lines: device, model, data, schedule, what fills each slot, and what each switch does here or why it has no
/// effect.
std::string plan_text(const Plan& plan);
Json plan_json(const Plan& plan);
/// "3.63 GFLOP".
std::string human_flops(double operations);

// The curve of a learning-rate schedule, for `plan --schedule`.

/// A plot of the rate, and of the momentum if the schedule moves it, over the steps of the run, as lines of text at
/// most 80 columns wide. A column shows the highest value of its steps. Without a limit on steps: the first 1,000.
std::string schedule_picture(const Plan& plan);

/// {"step": [...], "learning_rate": [...], "momentum": [...]}: of every step, or of 10,000 evenly spaced ones.
/// The schedule; its last value is null unless a momentum moves.
Json schedule_json(const Plan& plan);

}  // namespace trainopt
