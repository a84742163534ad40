// What a step of several ranks sent and held in memory, compared with the formulas.
#pragma once

#include "train/parameter_store.h"
#include "train/receipt.h"

namespace trainopt {

class Communicator;
class Model;
struct Plan;

/// Broadcasts rank 0's parameters and buffers to all ranks.
void broadcast_state(const Model& model, Communicator& communicator);
MakeReceipt sharding_receipt(const Plan& plan, const ParallelConfig& config);

}  // namespace trainopt
