#include "optimizations/set_to_none/set_to_none.h"

#include "train/plan.h"

namespace trainopt::set_to_none {

Outcome apply(Plan& plan) {
  if (plan.position.ranks > 1 && plan.parallel.sharding_strategy != ShardingStrategy::none)
    return Outcome::none(
        fmt::format("with parallel.sharding_strategy: {} a rank keeps its gradients in buffers of its own",
                    word_of(plan.parallel.sharding_strategy)));
  if (plan.position.ranks > 1 && plan.parallel.async_updates.staleness > 0)
    return Outcome::none("with parallel.async_updates gradients are kept for the step after");
  plan.clear_gradients = ClearGradients::drop;
  return Outcome::applied("gradients are dropped after each update", [](const Observations& seen) {
    if (seen.step == 1)
      return Receipt{.observed = "nothing: no step begins with gradients but the second",
                     .effective = false,
                     .reason = "the run had one step"};
    const bool effective = seen.gradients_at_start == 0;
    return Receipt{.observed = fmt::format("{} of {} gradients existed when the step began", seen.gradients_at_start,
                                           seen.parameters),
                   .effective = effective,
                   .reason = effective ? "" : "gradients were kept"};
  });
}

}  // namespace trainopt::set_to_none
