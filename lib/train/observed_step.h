// Fills a StepTrace during one step of a trainer.
#pragma once

#include "train/step_trace.h"

#include <memory>
#include <optional>

namespace trainopt {

class Optimizer;
class ParameterStore;

/// Create at the start of the step, with its backend settings in effect. Records operations until destroyed.
class ObservedStep {
 public:
  ObservedStep(StepTrace& trace, const ParameterStore& parameters);
  /// Whether the step that starts is the one to observe: the process's second step, since the first includes one-off
  /// work, or its only step. `steps_taken`: steps of this process so far; `steps_left`: steps still to take. Also true
  /// of later steps, in case the second one failed.
  static bool observes(int64_t steps_taken, int64_t steps_left) { return steps_taken > 0 || steps_left <= 1; }
  /// Starts observing if it is and no step was observed before, otherwise returns null.
  static std::unique_ptr<ObservedStep> if_due(StepTrace& trace, const ParameterStore& parameters, int64_t steps_taken,
                                              int64_t steps_left);

  struct End {
    int64_t step = 0;                ///< the step that has ended
    const BatchSourceStats& loader;  ///< during the step
    const ParameterStore& parameters;
    const Optimizer& optimizer;
    int64_t gradient_bytes = 0;  ///< at the update, before gradients were cleared
  };
  /// Not called for a step that fails; its trace then has no step.
  void finish(const End& end);

 private:
  StepTrace& trace_;
  std::optional<StepObserver> observer_;  ///< set at the end of the constructor
};

}  // namespace trainopt
