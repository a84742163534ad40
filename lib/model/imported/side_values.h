// What units of an imported program pass on beside their output.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

namespace trainopt {

struct SideValues {
  std::vector<c10::IValue> values;  ///< by ProgramValue::index
};

}  // namespace trainopt
