// An ablation as text, Markdown and CSV.
#pragma once

#include "compare/ablation.h"

#include <string>

namespace trainopt {

/// A table for a terminal; `color`: green for pays, red for costs and for numbers that disagree.
std::string ablation_text(const Ablation& ablation, bool color);
std::string ablation_markdown(const Ablation& ablation);
/// One line per switch, with a header.
std::string ablation_csv(const Ablation& ablation);

/// One line per ceiling: "even free loading would give +7.0 % (+5.9 % to +8.1 %)".
std::string ceilings_text(const std::vector<CeilingRow>& ceilings);

}  // namespace trainopt
