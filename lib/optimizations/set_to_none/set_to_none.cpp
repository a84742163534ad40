#include "optimizations/set_to_none/set_to_none.h"

#include "train/plan.h"

namespace trainopt::set_to_none {

Outcome apply(Plan& plan) {
  if (plan.position.ranks > 1 && plan.parallel.sharding_strategy != ShardingStrategy::none)
    return Outcome::none(
        fmt::format("with parallel.sharding_strategy: {} each rank keeps its gradients in its own buffers",
                    word_of(plan.parallel.sharding_strategy)));
  if (plan.position.ranks > 1 && plan.parallel.async_updates.staleness > 0)
    return Outcome::none("with parallel.async_updates gradients are kept for the next step");
  plan.clear_gradients = ClearGradients::drop;
  return Outcome::applied("gradients are freed after each update", [](const StepTrace& seen) {
    if (seen.step == 1)
      return Receipt{.observed = "nothing: the first step never starts with gradients",
                     .effective = false,
                     .reason = "the run had only one step"};
    const bool effective = seen.gradients_at_start == 0;
    return Receipt{.observed = fmt::format("{} of {} gradients existed when the step began", seen.gradients_at_start,
                                           seen.parameters),
                   .effective = effective,
                   .reason = effective ? "" : "gradients were not freed"};
  });
}

}  // namespace trainopt::set_to_none
