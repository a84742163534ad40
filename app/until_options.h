// The options of `compare --until target`.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace trainopt {

struct UntilOptions {
  std::string until;  ///< "target", or empty: not asked for
  int64_t seeds = 10;

  explicit operator bool() const { return !until.empty(); }
  /// Call after the command's other options, because it excludes those of measurements in turns. `help`: of --until.
  void add_to(CLI::App& command, const std::string& help);
};

}  // namespace trainopt
