// Expands Slurm's compressed lists of nodes and task counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainopt {

/// "node[003-005,009],gpu1" → node003 node004 node005 node009 gpu1; several brackets in a name multiply. Throws
/// UserError for anything else.
std::vector<std::string> expand_node_list(const std::string& text);

/// "2(x3),1" → 2 2 2 1: how many tasks each node has. Throws UserError for anything else.
std::vector<int64_t> expand_task_counts(const std::string& text);

}  // namespace trainopt
