// The last layer of a classifier, and a new one in its place for another number of classes.
#pragma once

#include "model/program/program.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace trainopt {

/// A linear layer whose result is what the program returns.
struct ProgramHead {
  int64_t weight = -1;
  std::optional<int64_t> bias;
  int64_t in = 0;                ///< values of its input
  std::vector<int64_t> results;  ///< values with one element for each class: its result, and what is returned
};

/// `trained`: the parameters that are trained, by the value's index. If there is no head, `why_not` says why in a
/// clause about the program.
std::optional<ProgramHead> find_head(const ProgramGraph& graph, const std::set<int64_t>& trained, std::string& why_not);

/// Changes the number of classes of the head, in the graph and in the program's parameters, whose values are then new.
/// `names`: of parameters, by the value's index.
void give_classes(const ProgramHead& head, int64_t classes, const std::map<int64_t, std::string>& names,
                  ProgramGraph& graph, Program& program);

}  // namespace trainopt
