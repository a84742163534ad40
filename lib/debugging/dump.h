// `logging.dump`: writes what the model computed in chosen steps, for checkers outside the program.
#pragma once

namespace trainopt {

struct Plan;

/// What several ranks dump.
enum class RankDumps {
  each,     ///< every rank its own outputs and, with sharding, its own part of the gradients; rank N in dump/rank-N
  complete  ///< rank 0 complete gradients, gathered from the other ranks, which write nothing
};

/// Wraps the task, the precision and the step runner so that for each chosen step
/// RUN_DIR/dump/step-00000001.safetensors holds
///   outputs            of the whole step, micro-batches concatenated in order
///   gradients.<name>   mean over the step, after unscaling and before clipping
///   buffers.<name>     after the step
/// Does nothing if the recipe chose no step.
void add_dump(Plan& plan, RankDumps ranks = RankDumps::each);

}  // namespace trainopt
