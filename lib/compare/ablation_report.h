// An ablation as people read it and paste it.
#pragma once

#include "compare/ablation.h"

#include <string>

namespace trainopt {

/// A table for a terminal; `color`: what pays in green, what costs and numbers that disagree in red.
std::string ablation_text(const Ablation& ablation, bool color);
std::string ablation_markdown(const Ablation& ablation);
/// One line a switch, with a head.
std::string ablation_csv(const Ablation& ablation);

/// "even a perfect loader would give +7.0 % (+5.9 % to +8.1 %)", a line each.
std::string ceilings_text(const std::vector<CeilingRow>& ceilings);

}  // namespace trainopt
