// Data parallelism that never waits: the sum of a step's gradients travels during the next step and is used at its end.
#pragma once

#include "comm/config.h"
#include "train/build_context.h"
#include "train/parameter_store.h"

#include <memory>

namespace trainopt {

/// Other mathematics than the recipe without it: weights are updated with gradients of the weights before (staleness
/// 1), and the first update has none.
std::unique_ptr<ParameterStore> make_stale_parameters(const BuildContext& context, const ParallelConfig& config);

}  // namespace trainopt
