// What a step of several ranks exchanged and held, beside the formulas.
#pragma once

#include "train/receipt.h"
#include "train/sharded_model.h"

namespace trainopt {

class Communicator;
class Model;
struct Plan;

/// All ranks get rank 0's parameters and buffers.
void share_state(const Model& model, Communicator& communicator);
MakeReceipt sharding_receipt(const Plan& plan, const ParallelConfig& config);

}  // namespace trainopt
