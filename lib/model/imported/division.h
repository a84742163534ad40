// Divides an imported program into units.
#pragma once

#include "model/program/program.h"

#include <set>
#include <string>
#include <vector>

namespace trainopt {

/// An end of a module where a unit should have ended.
struct UncutPlace {
  std::string module;
  bool after = false;    ///< behind the module's last node, otherwise before its first
  std::string obstacle;  ///< why no cut is legal there
};

/// Consecutive nodes of a graph that are one unit. It is given one tensor and returns one.
struct NodeRange {
  size_t first = 0, end = 0;
  std::string name;
  ProgramValue input, output;
  bool copies_input = false;      ///< it changes the input through a view of it, and must not change the caller's
  std::vector<UncutPlace> uncut;  ///< wanted, but not legal; without the few inside of a block that is a unit
};

/// Facts that a division depends on.
struct DivisionInput {
  ProgramValue input;         ///< the user's
  std::set<int64_t> trained;  ///< the parameters' values
  std::set<int64_t> given;    ///< values of parameters, buffers and constants
};

/// A cut is legal only where one tensor with gradient is alive whose first dimension is that of the batch, where no
/// later operation changes that tensor through a view of it, and where none changes a value that both sides use.
/// `where`: "blocks" cuts at the ends of modules that consist of modules, "layers" at every legal place, and anything
/// else is a pattern with * and ? for the names of the modules that are units.
///
/// Throws UserError(recipe) if a pattern matches no module, UserError(checkpoint) if the program's result has no
/// gradient. A unit may not change its input: an operation in place on it becomes the one out of place, in graph.nodes.
std::vector<NodeRange> divide(ProgramGraph& graph, const DivisionInput& facts, const std::string& where);

}  // namespace trainopt
