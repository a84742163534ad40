// What torchrun, mpirun, srun or `trainopt launch` told this process of its place; README.md has the variables and who
// wins.
#pragma once

#include "comm/rank_position.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

struct Launch {
  RankPosition position;
  std::string launcher;  ///< "trainopt launch", "torchrun", "mpirun", "srun"; empty: started by hand, alone
  std::optional<std::string> master_address;
  std::optional<int> master_port;  ///< null, as the address: rank 0 publishes a port in a file; only on one machine
  bool launcher_serves_store =
      false;           ///< torchrun's agent listens at the master's port: no rank may, all are its clients
  std::string job;     ///< names the job on this machine, fit for a file name; empty if the launcher gives none
  std::string notice;  ///< what a user who wanted several ranks should know; empty: nothing
  std::vector<std::string> variables;  ///< "RANK=0" …: what was read, for messages
};

/// Throws UserError, with the variables, where they are incomplete, are no numbers, or contradict each other.
Launch read_launch(const std::map<std::string, std::string>& environment);

}  // namespace trainopt
