// How several ranks share a model: parallel.sharding_strategy.
#pragma once

#include "comm/communicator.h"
#include "comm/config.h"
#include "optimizations/info.h"
#include "train/parameter_store.h"
#include "train/receipt.h"

#include <memory>

namespace trainopt {
struct Plan;
}

namespace trainopt::sharding {

inline constexpr Info kInfo{"parallel.sharding_strategy", Exactness::same_math, 1e-4};

Outcome apply(Plan& plan, const ParallelConfig& config);

// Keys that say how it is done. A plan has an entry of each that is not as usual, and on a single
// rank of every other key of the section that is not. They also label what is counted of
// them: the groups in which a model is gathered, and the updates with gradients of an earlier step.
inline constexpr const char *kWrap = "parallel.wrap", *kAsyncUpdates = "parallel.async_updates";
std::vector<PlannedSwitch> parts_of(const Plan& plan, const ParallelConfig& config);

}  // namespace trainopt::sharding

namespace trainopt {

class Model;

/// Broadcasts rank 0's parameters and buffers to all ranks.
void broadcast_state(const Model& model, Communicator& communicator);

// The two communicators of hybrid sharding (Zhao et al. 2023, "PyTorch FSDP", section 3.2.2): shares of the model are
// gathered inside a machine, and copies of a share summed across the machines.

struct MachineGroups {
  std::unique_ptr<Communicator> inside;  ///< between the ranks of this machine
  std::unique_ptr<Communicator> across;  ///< between the ranks with the same rank on their machine
};

/// Every rank of the job must call it. `job` must outlive the result. Throws UserError if this machine has one rank
/// only, or if the ranks do not follow each other machine after machine, as many on each.
MachineGroups connect_machines(Communicator& job);

}  // namespace trainopt
