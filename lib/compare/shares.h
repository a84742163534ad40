// Attributes an ablation's total gain to its switches.
#pragma once

#include "compare/ablation.h"

namespace trainopt {

/// How shares are computed, in one sentence.
extern const char* const kShareRule;
/// Fills in `share` of every switch with both gains, and the rest, which includes the other switches. `reach`:
/// half-width of the intervals, in standard errors.
void attribute(Ablation& ablation, double reach);

}  // namespace trainopt
