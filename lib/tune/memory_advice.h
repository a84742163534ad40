// Which change of a recipe lowers the memory of a step.
#pragma once

#include "optimizations/info.h"
#include "recipe/recipe_io.h"

#include <string>
#include <vector>

namespace trainopt {

struct MemoryProposal {
  std::string what;  ///< "recompute activations …", as the plan says it
  Words change;
  Exactness exactness = Exactness::same_bits;
  int64_t bytes_before = 0, bytes_after = 0;  ///< forecast bytes of live tensors at the step's peak (forecast_memory())

  int64_t saved_bytes() const { return bytes_before - bytes_after; }
};

/// Changes with a lower forecast here, the lowest first: switches (memory_switches()), and the same global batch in
/// twice as many micro-batches. `plan` is the recipe's. Throws UserError if its own memory cannot be forecast.
std::vector<MemoryProposal> propose_less_memory(const Recipe& recipe, const Plan& plan);

}  // namespace trainopt
