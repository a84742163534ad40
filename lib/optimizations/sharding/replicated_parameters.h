// Data parallelism (DDP): every rank has the whole model, and gradients are summed over the ranks.
#pragma once

#include "comm/config.h"
#include "model/weights_file.h"
#include "train/parameter_store.h"
#include "train/slot.h"

#include <memory>
#include <optional>

namespace trainopt {

/// All ranks start with rank 0's parameters and buffers. Every rank must call it.
std::unique_ptr<ParameterStore> make_replicated_parameters(const BuildContext& context, const ParallelConfig& config);

// What ReplicatedParameters holds, for forecasts of memory.

struct BuildContext;

/// Stands for the store of make_replicated_parameters() on the meta device, where c10d's Reducer cannot work. It holds
/// the same memory at the same time: the buckets, and gradients rounded to `wire_type` until backward ends.
std::unique_ptr<ParameterStore> make_shaped_replicas(const BuildContext& context,
                                                     std::optional<c10::ScalarType> wire_type);

// Data parallelism that hides communication: a step's gradients are summed over the ranks during the next step and
// applied at its end.

/// This changes training: each update uses gradients of the previous step's weights (staleness 1), and the first update
/// has none.
std::unique_ptr<ParameterStore> make_stale_parameters(const BuildContext& context, const ParallelConfig& config);

// Gradients of all parameters in one tensor.

/// Makes the parameters' gradients views of one tensor of zeros, in which backward then accumulates, and returns it.
at::Tensor attach_flat_gradients(const NamedTensors& parameters);

}  // namespace trainopt
