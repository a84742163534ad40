// Reads this process's rank from the variables of torchrun, mpirun, srun or `trainopt launch`. README.md lists the
// variables and the precedence.
#pragma once

#include "comm/config.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

/// How often the launcher has started all ranks again after a failure, and how often it may.
struct Restarts {
  int64_t done = 0, allowed = 0;
};

/// Variable with a secret of at least 16 characters that all ranks of a job share: only those who know it can write to
/// the ranks' store.
inline constexpr const char* kKeyVariable = "TRAINOPT_JOB_KEY";

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

// Reads environment variables strictly and remembers which were read, so that messages can show them.

/// Parses 1 to 18 decimal digits and nothing else; nullopt otherwise.
std::optional<int64_t> parse_count(std::string_view text);

class LaunchVariables {
 public:
  explicit LaunchVariables(const std::map<std::string, std::string>& environment) : environment_(environment) {}

  bool has(const std::string& name) const { return environment_.contains(name); }
  /// nullopt if the variable is not set. Throws UserError if it is empty.
  std::optional<std::string> text(const std::string& name);
  /// Throws UserError unless the variable is unset or a number of at least `minimum`.
  std::optional<int64_t> number(const std::string& name, int64_t minimum = 0);

  /// "RANK=0" …, in reading order.
  const std::vector<std::string>& read() const { return read_; }
  /// Throws UserError: the sentence, then all variables read so far.
  [[noreturn]] void refuse(const std::string& sentence) const;

 private:
  const std::map<std::string, std::string>& environment_;
  std::vector<std::string> read_;
};

// Expands Slurm's compressed lists of nodes and task counts.

/// "node[003-005,009],gpu1" → node003 node004 node005 node009 gpu1; several brackets in a name multiply. Throws
/// UserError for anything else.
std::vector<std::string> expand_node_list(const std::string& text);

/// "2(x3),1" → 2 2 2 1: how many tasks each node has. Throws UserError for anything else.
std::vector<int64_t> expand_task_counts(const std::string& text);

}  // namespace trainopt
