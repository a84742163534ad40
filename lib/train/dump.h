// `logging.dump`: what the model computed in chosen steps, for a checker outside the program.
#pragma once

namespace trainopt {

struct Plan;

/// Wraps the task, the precision and the step runner so that for each chosen step
/// RUN_DIR/dump/step-00000001.safetensors holds
///   outputs            of the step, micro-batches one after another
///   gradients.<name>   means over the step, after unscaling, before clipping
///   buffers.<name>     after the step
/// Nothing if the recipe chose no step.
void add_dump(Plan& plan);

}  // namespace trainopt
