// Data parallelism (DDP): every rank has the whole model, and gradients are summed over the ranks.
#pragma once

#include "comm/config.h"
#include "train/parameter_store.h"
#include "train/slot.h"

#include <memory>

namespace trainopt {

/// All ranks start with rank 0's parameters and buffers. Every rank must call it.
std::unique_ptr<ParameterStore> make_replicated_parameters(const BuildContext& context, const ParallelConfig& config);

}  // namespace trainopt
