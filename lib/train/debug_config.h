// The section `debug` of a recipe: checks that are off by default, because each slows the run down.
#pragma once

#include "config/describe.h"

namespace trainopt {

struct DebugConfig {
  bool find_syncs = false, anomaly = false;
};
template <class V>
void describe(V& v, DebugConfig& c) {
  v.field("find_syncs", c.find_syncs,
          "Name every operation of one step in which the host waits for the device or copies without need. Slows that "
          "step down, and labels the units in all steps.");
  v.field("anomaly", c.anomaly,
          "Name the operation and unit in which a NaN or an infinity begins, and those whose backward failed. Makes "
          "training several times slower: the result of every operation is checked, and a GPU is waited for each "
          "time.");
}

}  // namespace trainopt
