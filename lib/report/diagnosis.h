// What limits a run, and what to try, as its summary says. Silent where that says nothing.
#pragma once

#include "report/sources.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt::report {

struct Limit {
  std::string sentence;
  std::string evidence;             ///< may be empty
  std::optional<double> share_pct;  ///< share of the training's time; null: nothing stands out
  struct Part {
    std::string name;
    double share_pct;
  };
  std::vector<Part> parts;  ///< the largest first, the last for what has no name
};
/// Nothing if the summary has none: the run has not ended, or no step was measured.
std::optional<Limit> limit_of(const RunFolder& run);

struct Advice {
  std::string what;      ///< "load with more threads"
  std::string evidence;  ///< the numbers behind it
  std::string command;   ///< tries or measures it; may be empty
};
/// Commands name the run's recipe.yaml and start as many ranks as the run had.
std::vector<Advice> advice_for(const RunFolder& run);

}  // namespace trainopt::report
