#include "app/run_limit.h"

namespace trainopt {

std::optional<Limit> limit_of_run(const Plan& plan, const RunOutcome& outcome, const Summary& summary,
                                  double records_s) {
  const auto step = summary.step_times();
  if (!step) return std::nullopt;
  RunTimes times{.steps = summary.steps(),
                 .step = *step,
                 .evaluation_s = outcome.between.evaluation_s,
                 .checkpoint_s = outcome.between.checkpoint_s,
                 .records_s = records_s,
                 .loader_threads = plan.loader.num_workers,
                 .copies_ahead = plan.device.is_cpu() || plan.loader.non_blocking,
                 .memory_bound_pct = plan.peak.memory_bound_pct};
  if (outcome.loading) times.loader = LoaderShares::of(*outcome.loading);
  if (plan.device.is_cpu() && plan.peak.operation_us)
    times.operations_ms = *plan.peak.operation_us / 1e3 *
                          static_cast<double>(outcome.trace.calls([](const TracedOperation&) { return true; }));
  return find_limit(times);
}

}  // namespace trainopt
