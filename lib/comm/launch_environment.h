// Reads this process's rank from the variables of torchrun, mpirun, srun or `trainopt launch`. README.md lists the
// variables and the precedence.
#pragma once

#include "comm/rank_position.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// How often the launcher has started all ranks again after a failure, and how often it may.
struct Restarts {
  int64_t done = 0, allowed = 0;
};

struct Launch {
  RankPosition position;
  std::string launcher;  ///< "trainopt launch", "torchrun", "mpirun", "srun"; empty: no launcher, one rank
  std::optional<std::string> master_address;
  std::optional<int> master_port;  ///< address and port null, only on one machine: rank 0 publishes its port in a file
  bool launcher_serves_store = false;  ///< torchrun's agent listens on the master port, so all ranks connect as clients
  Restarts restarts;
  std::string job;     ///< identifies the job on this machine, safe in file names; empty if the launcher has no id
  std::string notice;  ///< hint for a user who probably wanted several ranks; empty: none
  std::vector<std::string> variables;  ///< "RANK=0" …: all that were read, for messages
};

/// Throws UserError showing the variables if they are incomplete, not numbers, or contradict each other.
Launch read_launch(const std::map<std::string, std::string>& environment);

/// Those names in the environment by which a launcher tells a process its rank. Without them it is no launcher's.
std::vector<std::string> launcher_variables(const std::map<std::string, std::string>& environment);

}  // namespace trainopt
