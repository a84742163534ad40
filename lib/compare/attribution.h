// Which part of an ablation's total is each switch's.
#pragma once

#include "compare/ablation.h"

namespace trainopt {

/// The rule of the shares, in a sentence.
extern const char* const kShareRule;
/// Fills in `share` of every measured switch, and the rest. `reach`: of the gains' intervals, in standard errors.
void attribute(Ablation& ablation, double reach);

}  // namespace trainopt
