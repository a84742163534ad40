// The two communicators of hybrid sharding (Zhao et al. 2023, "PyTorch FSDP", section 3.2.2): shares of the model are
// gathered inside a machine, and copies of a share summed across the machines.
#pragma once

#include "comm/communicator.h"

#include <memory>

namespace trainopt {

struct MachineGroups {
  std::unique_ptr<Communicator> inside;  ///< between the ranks of this machine
  std::unique_ptr<Communicator> across;  ///< between the ranks with the same rank on their machine
};

/// Throws UserError if this machine has one rank only, or if the ranks do not follow each other machine after machine,
/// as many on each.
void require_machines(const RankPosition& position);

/// Every rank of the job must call it. `job` must outlive the result. Throws UserError as require_machines() does.
MachineGroups connect_machines(Communicator& job);

}  // namespace trainopt
