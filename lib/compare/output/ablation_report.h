// An ablation as text, Markdown and CSV.
#pragma once

#include "base/json.h"
#include "compare/ablation.h"
#include "compare/output/table.h"

#include <string>

namespace trainopt {

/// A table for a terminal; in colour, green for pays, red for costs and for numbers that disagree.
std::string ablation_text(const Ablation& ablation, const TextStyle& style);
std::string ablation_markdown(const Ablation& ablation);
/// One line per switch, with a header.
std::string ablation_csv(const Ablation& ablation);

/// One line per ceiling: "even free loading would give +7.0 % (+5.9 % to +8.1 %)".
std::string ceilings_text(const std::vector<CeilingRow>& ceilings);

// An ablation as JSON.

/// {total, switches: [{name, alone, in_stack, interaction, one_off_s, break_even_step, …}], ceilings, …}.
Json to_json(const Ablation& ablation);
Json ceilings_json(const std::vector<CeilingRow>& ceilings);

}  // namespace trainopt
