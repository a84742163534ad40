#include "optimizations/cuda_graph/cuda_graph.h"

#include "optimizations/cuda_graph/graph_runner.h"
#include "train/plan.h"

#include <algorithm>
#include <cmath>

namespace trainopt::cuda_graph {
namespace {

bool has_effect(const Plan& plan, const std::string& name) {
  return std::any_of(plan.switches.begin(), plan.switches.end(),
                     [&](const PlannedSwitch& other) { return other.name == name && other.outcome.has_effect; });
}

/// When the time that recording took has come back.
std::string when_it_pays(const Observations& seen) {
  if (seen.eager_step_ms == 0 || seen.replayed_step_ms == 0) return "";
  const double saved_ms = seen.eager_step_ms - seen.replayed_step_ms;
  return fmt::format(", {} (one step alone: {:.2f} ms eager, {:.2f} ms replayed)",
                     saved_ms > 0
                         ? fmt::format("pays after about {:.0f} steps", std::ceil(seen.recording_ms / saved_ms))
                         : "which does not pay",
                     seen.eager_step_ms, seen.replayed_step_ms);
}

Receipt receipt(const Observations& seen) {
  const bool effective = seen.replayed_steps > 0;
  return {.observed =
              fmt::format("{} of {} steps replayed{}; recording took {:.1f} ms{}", seen.replayed_steps,
                          seen.eager_steps + seen.replayed_steps, seen.recording_ended ? ", until memory ran out" : "",
                          seen.recording_ms, when_it_pays(seen)),
          .effective = effective,
          .reason = effective ? ""
                    : seen.recording_ended
                        ? "memory ran out while the first step was recorded"
                        : fmt::format("no kind of step came more than {} times", GraphRunner::kEagerSteps)};
}

}  // namespace

Outcome apply(Plan& plan) {
  if (!plan.device.is_cuda()) return Outcome::none("graphs are recorded on NVIDIA GPUs; this plan runs on the CPU");
  if (plan.position.ranks > 1) return Outcome::none("what several ranks exchange within a step is not recorded yet");
  if (!has_effect(plan, "fused_optimizer"))
    return Outcome::none(
        "without fused_optimizer the learning rate is the host's, which a recording would never ask again");
  plan.runner.fill("cuda_graph", "recorded and replayed",
                   [](const BuildContext& context) { return std::make_unique<GraphRunner>(context, make_graph); });
  return Outcome::applied(
      fmt::format("each kind of step is recorded after {} eager ones, then replayed", GraphRunner::kEagerSteps),
      receipt);
}

}  // namespace trainopt::cuda_graph
