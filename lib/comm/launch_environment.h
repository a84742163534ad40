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

/// Variable with a secret of at least kMinKeyLength characters that all ranks of a job share: only those who know it
/// can write to the ranks' store.
inline constexpr const char* kKeyVariable = "TRAINOPT_JOB_KEY";
inline constexpr size_t kMinKeyLength = 16;

struct Launch {
  RankPosition position;
  std::string launcher;  ///< "trainopt launch", "torchrun", "mpirun", "srun"; empty: no launcher, one rank
  std::optional<std::string> master_address;
  std::optional<int> master_port;  ///< address and port null, only on one machine: rank 0 publishes its port in a file
  bool launcher_serves_store = false;  ///< torchrun's agent listens on the master port, so all ranks connect as clients
  Restarts restarts;
  std::string temporary_folder = "/tmp";  ///< TMPDIR
  std::string key;                        ///< the job's secret (TRAINOPT_JOB_KEY), never shown; empty: none
  std::string job;     ///< identifies the job on this machine, safe in file names; empty if the launcher has no id
  std::string notice;  ///< hint for a user who probably wanted several ranks; empty: none
  std::vector<std::string> variables;  ///< "RANK=0" …: all that were read, for messages
};

/// Empty if the environment has none. Throws UserError if it is too short.
std::string key_in(const std::map<std::string, std::string>& environment);

/// Throws UserError showing the variables if they are incomplete, not numbers, or contradict each other.
Launch read_launch(const std::map<std::string, std::string>& environment);

/// Those names in the environment by which a launcher tells a process its rank. Without them it is no launcher's.
std::vector<std::string> launcher_variables(const std::map<std::string, std::string>& environment);

}  // namespace trainopt
