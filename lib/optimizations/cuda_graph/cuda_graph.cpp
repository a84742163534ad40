#include "optimizations/cuda_graph/cuda_graph.h"

#include "optimizations/cuda_graph/graph_runner.h"
#include "optimizations/option_checks.h"
#include "train/plan.h"

#include <cmath>

namespace trainopt::cuda_graph {
namespace {

/// After how many replayed steps the time spent on recording is recovered.
std::string when_it_pays(const StepTrace& seen) {
  const double eager_ms = seen.count(kEagerStepMsLabel), replayed_ms = seen.count(kReplayedStepMsLabel);
  if (eager_ms == 0 || replayed_ms == 0) return "";
  const double saved_ms = eager_ms - replayed_ms;
  return fmt::format(", {} (one step: {:.2f} ms eager, {:.2f} ms replayed)",
                     saved_ms > 0 ? fmt::format("pays off after about {:.0f} steps",
                                                std::ceil(seen.count(kRecordingMsLabel) / saved_ms))
                                  : "which does not pay off",
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
                              : fmt::format("no kind of step occurred more than {} times", GraphRunner::kEagerSteps)};
}

}  // namespace

void check(OptionChecks& checks) {
  if (!checks.learning_rate_on_device)
    checks.refuse("optimizations.cuda_graph",
                  "needs optimizations.fused_optimizer: true, which keeps the learning rate on the device");
}

Outcome apply(Plan& plan) {
  if (!plan.device.is_cuda()) return Outcome::none("CUDA graphs need an NVIDIA GPU; this plan runs on the CPU");
  if (plan.position.ranks > 1) return Outcome::none("exchanges between several ranks cannot be recorded yet");
  if (!plan.learning_rate_on_device)
    return Outcome::none(
        "without fused_optimizer the host supplies the learning rate, and a recording would never see it change");
  if (plan.data.micro_batches_vary())
    return Outcome::none(
        "batches of documents differ in length and weight, and a recording is for one; data.padding: max without "
        "accumulation makes them alike");
  if (cycled_momentum(plan.scheduler) != nullptr)
    return Outcome::none(
        "the schedule moves the momentum, which a recording would never see change; scheduler.cycle_momentum=false "
        "does without");
  if (std::holds_alternative<SwaConfig>(plan.average_config))
    return Outcome::none("average.name: swa counts some steps only, and a recording is the same for every step");
  if (plan.rewinds_random_state)
    return Outcome::none(
        "activation_checkpointing sets dropout's random state back in every step, which a recording cannot; "
        "model.dropout=0 does without");
  plan.runner.fill("cuda_graph", "CUDA graphs, recorded and replayed",
                   [](const BuildContext& context) { return std::make_unique<GraphRunner>(context, make_graph); });
  plan.replays_steps = true;
  return Outcome::applied(
      fmt::format("each kind of step runs eagerly {} times, then is recorded and replayed", GraphRunner::kEagerSteps),
      receipt);
}

}  // namespace trainopt::cuda_graph
