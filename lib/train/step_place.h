// Where in a step something happens: which phase, which unit of the model.
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

struct StepPlace {
  std::string phase;  ///< forward, backward, update, data, record, or step for what lies between them
  std::string unit;   ///< empty outside the units
  auto operator<=>(const StepPlace&) const = default;

  /// "unit layer1.0, backward" or "forward, outside the units".
  std::string text() const;
};

/// The labels that are open in a step (TraceRange, label_units()), of all threads together: while backward's threads
/// work, the trainer's waits.
class OpenLabels {
 public:
  void begin(std::string_view label);
  void end(std::string_view label);
  StepPlace place() const;

 private:
  std::vector<std::string> open_;
};

}  // namespace trainopt
