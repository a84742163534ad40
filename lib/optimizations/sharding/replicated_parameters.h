// Data parallelism (DDP): every rank has the whole model, and gradients are summed over the ranks.
#pragma once

#include "comm/config.h"
#include "train/parameter_store.h"
#include "train/slot.h"

#include <memory>

namespace trainopt {

/// All ranks start with rank 0's parameters and buffers. Every rank must call it.
std::unique_ptr<ParameterStore> make_replicated_parameters(const BuildContext& context, const ParallelConfig& config);

// Data parallelism that hides communication: a step's gradients are summed over the ranks during the next step and
// applied at its end.

/// This changes training: each update uses gradients of the previous step's weights (staleness 1), and the first update
/// has none.
std::unique_ptr<ParameterStore> make_stale_parameters(const BuildContext& context, const ParallelConfig& config);

}  // namespace trainopt
