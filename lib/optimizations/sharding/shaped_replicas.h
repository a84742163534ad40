// What ReplicatedParameters holds, for forecasts of memory.
#pragma once

#include "train/parameter_store.h"

#include <memory>
#include <optional>

namespace trainopt {

struct BuildContext;

/// Stands for the store of make_replicated_parameters() on the meta device, where c10d's Reducer cannot work. It holds
/// the same memory at the same time: the buckets, and gradients rounded to `wire_type` until backward ends.
std::unique_ptr<ParameterStore> make_shaped_replicas(const BuildContext& context,
                                                     std::optional<c10::ScalarType> wire_type);

}  // namespace trainopt
