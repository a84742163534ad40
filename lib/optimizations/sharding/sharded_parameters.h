// ZeRO (Rajbhandari et al. 2020): each rank updates its share of the parameters and holds the optimizer state of that
// share only. With ZeRO-2 it also holds only its share of the gradients. With ZeRO-3 it also holds only its share of
// the parameters, which are gathered unit by unit when they are used.
#pragma once

#include "comm/config.h"
#include "train/parameter_store.h"
#include "train/slot.h"

#include <memory>

namespace trainopt {

/// Wraps the model's units. All ranks start with rank 0's parameters and buffers. Every rank must call it.
std::unique_ptr<ParameterStore> make_sharded_parameters(const BuildContext& context, const ParallelConfig& config);

}  // namespace trainopt
