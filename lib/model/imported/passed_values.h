// The side values that stages of a pipeline pass on, with what a stage knows of them without computing them.
#pragma once

#include "model/imported/order.h"
#include "model/imported/source.h"
#include "model/side_values.h"

#include <string>
#include <vector>

namespace trainopt {

/// The nodes of a program as they run in training or in evaluation, null where one is left out.
struct PassedFrom {
  std::vector<const ProgramNode*> nodes;
  std::vector<SideValueUse> uses;
};

/// Keeps what it needs of its arguments.
PassedValues passed_values(const ProgramSource& source, const std::vector<std::string>& units,
                           const PassedFrom& training, const PassedFrom& evaluation);

}  // namespace trainopt
