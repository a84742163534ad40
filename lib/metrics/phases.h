// The phases of a step, forward, backward and update, summed over steps.
#pragma once

#include "base/json.h"
#include "metrics/catalogue.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace trainopt {

/// Milliseconds of each phase. A phase that is missing in any of the steps (a replayed CUDA graph) has no sum.
class PhaseSums {
 public:
  static constexpr std::array<Metric, 3> kPhases{Metric::forward_ms, Metric::backward_ms, Metric::update_ms};

  /// Adds one step.
  void add(const Values& row);
  void add(const PhaseSums& other);
  /// A step's mean, in the order of kPhases.
  std::array<std::optional<double>, 3> means_ms() const;
  /// The means as {forward, backward, update}; null where there is none.
  Json means_json() const;
  /// "forward 3.1 ms, backward 6.0 ms, update 0.4 ms"; empty if there is no mean.
  std::string text() const;

  friend Json to_json(const PhaseSums& sums);
  friend PhaseSums phase_sums_from(const Json& json);

 private:
  int64_t steps_ = 0;
  std::array<std::optional<double>, 3> sums_ms_{0, 0, 0};
};

/// {steps, forward_ms, backward_ms, update_ms}, and back.
Json to_json(const PhaseSums& sums);
PhaseSums phase_sums_from(const Json& json);

}  // namespace trainopt
