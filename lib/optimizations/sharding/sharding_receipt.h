// What a step of several ranks exchanged and held, beside the formulas.
#pragma once

#include "comm/sharding_costs.h"
#include "train/receipt.h"

#include <ATen/core/ScalarType.h>

#include <optional>

namespace trainopt {

class Communicator;
class Model;
struct Plan;

/// Of gradients on the wire; null: as they are.
std::optional<c10::ScalarType> wire_type(const ParallelConfig& config);
/// The formulas' model for this plan.
ShardedModel sharded_model(const Plan& plan, const ParallelConfig& config, int64_t ranks);
/// All ranks get rank 0's parameters and buffers.
void share_state(const Model& model, Communicator& communicator);
MakeReceipt sharding_receipt(const Plan& plan, const ParallelConfig& config);

}  // namespace trainopt
