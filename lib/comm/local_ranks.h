// Starts the ranks of one machine as processes, and looks after them until the last has ended.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace trainopt {

struct LocalRanks {
  int count = 1;                 ///< ranks on this machine, the same on each
  int nodes = 1, node_rank = 0;  ///< machines, and which of them this is
  std::string master_address;    ///< empty, on one machine: 127.0.0.1 and a port that is free now
  int master_port = 0;
  std::vector<std::string> command;                ///< first the program's path
  std::map<std::string, std::string> environment;  ///< all of it; each rank's own variables are set over it
  double patience_s = 15;                          ///< between a rank that failed and SIGTERM to the others
  double grace_s = 5;                              ///< between SIGTERM and SIGKILL
};

/// The exit code: 0 if all ranks ended with 0; the code of the first that failed, 7 if a signal killed it; 128 + n if
/// they were stopped by signal n, which was passed on to them (INT, TERM, HUP, USR1, USR2). A failed rank is named on
/// standard error. Throws UserError, and leaves no process, if the program cannot be started. Signals must reach this
/// thread: no other thread may be running.
int run_local_ranks(const LocalRanks& spec);

/// A TCP port of 127.0.0.1 that nobody had a moment ago. Another process may take it before rank 0 does, which then
/// says so.
int free_local_port();

}  // namespace trainopt
