// ZeRO (Rajbhandari et al. 2020): each rank updates its share of the parameters and holds the optimizer's state of that
// alone; ZeRO-2 holds its share of the gradients alone too, ZeRO-3 its share of the parameters, which come together
// unit by unit when they are used.
#pragma once

#include "comm/config.h"
#include "train/build_context.h"
#include "train/parameter_store.h"

#include <memory>

namespace trainopt {

/// Wraps the model's units. All ranks begin with rank 0's parameters and buffers; every rank must call it.
std::unique_ptr<ParameterStore> make_sharded_parameters(const BuildContext& context, const ParallelConfig& config);

}  // namespace trainopt
