// What each launcher's own variables say; launch_environment.cpp decides between them.
#pragma once

#include "comm/launch_variables.h"

namespace trainopt {

/// Of `trainopt launch`.
inline constexpr const char* kOwnLauncher = "trainopt launch";

/// Null where the launcher does not say. Without any number it is no claim.
struct LaunchClaim {
  std::string launcher{};
  std::optional<int64_t> rank{}, ranks{}, local_rank{}, local_ranks{};
  std::string job{};

  bool any() const { return rank || ranks || local_rank || local_ranks; }
};

/// RANK, WORLD_SIZE and the like, which torchrun sets, `trainopt launch` sets, and scripts set by hand, sometimes only
/// some of them.
LaunchClaim read_torch_claim(LaunchVariables& variables);
/// A task of a Slurm step. Nothing in a batch script or the shell of an allocation, which Slurm also calls task 0 of
/// many: see README.md.
LaunchClaim read_slurm_claim(LaunchVariables& variables);
/// Open MPI, MPICH and its relatives. `in_step`: srun too started this process, and sets PMI's variables where it
/// serves PMI.
LaunchClaim read_mpi_claim(LaunchVariables& variables, bool in_step);

/// How many tasks the step has on this machine.
int64_t slurm_local_ranks(LaunchVariables& variables, int64_t ranks);
/// The first machine of the step, on which its task 0 runs.
std::string slurm_first_node(LaunchVariables& variables);
/// The same on every rank; differs between neighbouring jobs and steps: 15000 … 27999, below what systems hand out by
/// themselves.
int slurm_port(LaunchVariables& variables);

}  // namespace trainopt
