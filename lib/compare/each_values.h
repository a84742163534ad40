// The values of `--each KEY=a,b,c`.
#pragma once

#include <string>
#include <vector>

namespace trainopt {

struct EachValues {
  std::string key;
  std::vector<std::string> values;  ///< YAML, as in an override
};

/// Splits at commas outside brackets, braces and quotes. Throws UserError unless there is a key and 2 to kMostArms
/// values, none of them empty.
EachValues each_values(const std::string& text);

}  // namespace trainopt
