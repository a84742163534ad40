#include "optimizations/cuda_graph/cuda_graph.h"

#include "optimizations/cuda_graph/graph_runner.h"
#include "optimizations/option_checks.h"
#include "train/plan.h"

#include <cmath>

namespace trainopt::cuda_graph {
namespace {

/// When the time that recording took has come back.
std::string when_it_pays(const StepTrace& seen) {
  const double eager_ms = seen.count(kEagerStepMsLabel), replayed_ms = seen.count(kReplayedStepMsLabel);
  if (eager_ms == 0 || replayed_ms == 0) return "";
  const double saved_ms = eager_ms - replayed_ms;
  return fmt::format(
      ", {} (one step alone: {:.2f} ms eager, {:.2f} ms replayed)",
      saved_ms > 0 ? fmt::format("pays after about {:.0f} steps", std::ceil(seen.count(kRecordingMsLabel) / saved_ms))
                   : "which does not pay",
      eager_ms, replayed_ms);
}

Receipt receipt(const StepTrace& seen) {
  const double eager = seen.count(kEagerStepsLabel), replayed = seen.count(kReplayedStepsLabel);
  const bool effective = replayed > 0, ended = seen.count(kEndedLabel) != 0;
  return {.observed =
              fmt::format("{:.0f} of {:.0f} steps replayed{}; recording took {:.1f} ms{}", replayed, eager + replayed,
                          ended ? ", until memory ran out" : "", seen.count(kRecordingMsLabel), when_it_pays(seen)),
          .effective = effective,
          .reason = effective ? ""
                    : ended   ? "memory ran out while the first step was recorded"
                              : fmt::format("no kind of step came more than {} times", GraphRunner::kEagerSteps)};
}

}  // namespace

void check(OptionChecks& checks) {
  if (!checks.learning_rate_on_device)
    checks.refuse("optimizations.cuda_graph",
                  "needs optimizations.fused_optimizer: true, whose learning rate is on the device");
}

Outcome apply(Plan& plan) {
  if (!plan.device.is_cuda()) return Outcome::none("graphs are recorded on NVIDIA GPUs; this plan runs on the CPU");
  if (plan.position.ranks > 1) return Outcome::none("what several ranks exchange within a step is not recorded yet");
  if (!plan.learning_rate_on_device)
    return Outcome::none(
        "without fused_optimizer the learning rate is the host's, which a recording would never ask again");
  plan.runner.fill("cuda_graph", "recorded and replayed",
                   [](const BuildContext& context) { return std::make_unique<GraphRunner>(context, make_graph); });
  return Outcome::applied(
      fmt::format("each kind of step is recorded after {} eager ones, then replayed", GraphRunner::kEagerSteps),
      receipt);
}

}  // namespace trainopt::cuda_graph
