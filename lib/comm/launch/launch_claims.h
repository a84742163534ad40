// Reads each launcher's own variables; launch_environment.cpp decides which launcher takes precedence.
#pragma once

#include "comm/launch/launch_environment.h"

namespace trainopt {

/// LaunchClaim::launcher of `trainopt launch`.
inline constexpr const char* kOwnLauncher = "trainopt launch";

/// A launcher's description of this process. Fields are null where its variables are unset; with all four null there is
/// no claim.
struct LaunchClaim {
  std::string launcher{};
  std::optional<int64_t> rank{}, ranks{}, local_rank{}, local_ranks{};
  std::string job{};

  bool any() const { return rank || ranks || local_rank || local_ranks; }
};

/// RANK, WORLD_SIZE and the like: set by torchrun, by `trainopt launch`, and by scripts, which may set only some of
/// them.
LaunchClaim read_torch_claim(LaunchVariables& variables);
/// For a task of a Slurm step. Makes no claim in a batch script or the shell of an allocation, although Slurm sets
/// SLURM_PROCID=0 there too: see README.md.
LaunchClaim read_slurm_claim(LaunchVariables& variables);
/// Open MPI, MPICH and its derivatives. `in_step`: srun also started this process, and may itself have set PMI's
/// variables.
LaunchClaim read_mpi_claim(LaunchVariables& variables, bool in_step);

/// Number of tasks of the step on this machine.
int64_t slurm_local_ranks(LaunchVariables& variables, int64_t ranks);
/// The step's first machine, on which task 0 runs.
std::string slurm_first_node(LaunchVariables& variables);
/// A port from 15000 to 27999, below the ephemeral range. The same on every rank, and different for neighbouring jobs
/// and steps.
int slurm_port(LaunchVariables& variables);

}  // namespace trainopt
