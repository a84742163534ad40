#include "optimizations/set_to_none/set_to_none.h"

#include "train/plan.h"

namespace trainopt::set_to_none {

Outcome apply(Plan& plan) {
  plan.clear_gradients = ClearGradients::drop;
  return Outcome::applied("gradients are dropped after each update", [](const Observations& seen) {
    if (seen.step == 1) return Receipt{.observed = "nothing: no step begins with gradients but the second", .effective = false, .reason = "the run had one step"};
    const bool effective = seen.gradients_at_start == 0;
    return Receipt{.observed = fmt::format("{} of {} gradients existed when the step began", seen.gradients_at_start, seen.parameters),
                   .effective = effective,
                   .reason = effective ? "" : "gradients were kept"};
  });
}

}  // namespace trainopt::set_to_none
