// Evaluates a program that was exported in training mode. Its graph has the behaviour of training in it; one table says
// what each such operation does in evaluation, as nn.Module.eval() would have changed it.
#pragma once

#include "model/program/program.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// The graph's nodes as they run in evaluation, one for each of graph.nodes: changed, unchanged, or left out.
struct EvaluationNodes {
  std::vector<std::optional<ProgramNode>> nodes;
  std::vector<int64_t> same_as;  ///< for each value the one that it equals in evaluation, perhaps itself
  /// Why the program cannot be evaluated: names the operation that still draws or changes a
  /// buffer, and its module. Empty: it can.
  std::string problem;
};

/// `names`: of parameters and buffers, by the value's index.
EvaluationNodes evaluation_nodes(const ProgramGraph& graph, const std::map<int64_t, std::string>& names);

}  // namespace trainopt
