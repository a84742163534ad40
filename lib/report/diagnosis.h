// What limits a run, and what to try: rules on measured numbers, each with its evidence. Silent where there is none.
#pragma once

#include "report/run_folder.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt::report {

/// The largest part of the time.
struct Limit {
  std::string sentence;
  std::string evidence;
  double share_pct;  ///< of the measured steps' time
  struct Part {
    std::string name;
    double share_pct;
  };
  std::vector<Part> parts;  ///< of a step, the last for what has no name
};
/// Nothing if the summary has no times.
std::optional<Limit> limit_of(const RunFolder& run);

struct Advice {
  std::string what;      ///< "load with more threads"
  std::string evidence;  ///< the numbers behind it
  std::string command;   ///< to try or measure it; may be empty
};
/// Commands name the run's recipe.yaml and start as many ranks as the run had.
std::vector<Advice> advice_for(const RunFolder& run);

}  // namespace trainopt::report
