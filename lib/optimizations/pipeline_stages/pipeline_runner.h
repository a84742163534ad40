// Runs the micro-batches of a step in a pipeline's order.
#pragma once

#include "comm/config.h"
#include "optimizations/pipeline_stages/links.h"
#include "train/slot.h"

#include <memory>

namespace trainopt::pipeline_stages {

// What a runner posts into the trace, of the run so far.
inline constexpr const char* kWaitedLabel = "pipeline.waited_ms";    ///< for neighbours, after the first step
inline constexpr const char* kStepsLabel = "pipeline.steps_ms";      ///< of the same steps
inline constexpr const char* kInFlightLabel = "pipeline.in_flight";  ///< most micro-batches between their passes
inline constexpr const char* kMicroBatchesLabel = "pipeline.micro_batches";  ///< of the last step

/// Forwards of this stage that precede its first backward, beyond the first: with 1f1b as many as there are later
/// stages, with gpipe all.
int64_t warm_up(PipelineSchedule schedule, int64_t stages, int64_t stage);

struct RunnerOptions {
  int64_t warm_up;                    ///< micro-batches between forward and backward until the step's last has arrived
  bool accumulates = false;           ///< a step has several of the loader's batches
  std::shared_ptr<StageLinks> links;  ///< null to order the passes only
};

std::unique_ptr<StepRunner> make_pipeline_runner(RunnerOptions options);

/// Before the update: adds the gradients of tied weights over the stages that hold them, and makes norm and overflow
/// those of the whole model.
void join_stages(const BuildContext& context);

}  // namespace trainopt::pipeline_stages
