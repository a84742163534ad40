// An ablation as JSON.
#pragma once

#include "base/json.h"
#include "compare/ablation.h"

namespace trainopt {

/// {total, switches: [{name, alone, in_stack, interaction, one_off_s, break_even_step, …}], ceilings, …}.
Json to_json(const Ablation& ablation);
Json ceilings_json(const std::vector<CeilingRow>& ceilings);

}  // namespace trainopt
