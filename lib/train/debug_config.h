// The section `debug` of a recipe: checks that are off by default, because each slows the run down.
#pragma once

#include "config/describe.h"

namespace trainopt {

struct DebugConfig {
  bool find_syncs = false, anomaly = false, gradcheck = false;
  bool operator==(const DebugConfig&) const = default;
};
template <class V>
void describe(V& v, DebugConfig& c) {
  v.field("find_syncs", c.find_syncs,
          "Name every operation of one step in which the host waits for the device or copies without need. Slows that "
          "step down, and labels the units in all steps.");
  v.field("anomaly", c.anomaly,
          "Name the operation and unit in which a NaN or an infinity begins, and those whose backward failed. Makes "
          "training several times slower: the result of every operation is checked, and on a GPU the host waits for "
          "each.");
  v.field("gradcheck", c.gradcheck,
          "Before the first step, check every backward of trainopt's own that this recipe uses: its results against "
          "float64, and those against central differences. Delays the start by seconds to minutes.");
}

}  // namespace trainopt
