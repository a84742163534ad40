// Fills a StepTrace during one step of a trainer.
#pragma once

#include "train/step_trace.h"

#include <memory>
#include <optional>

namespace trainopt {

class Optimizer;
class ParameterStore;

/// Made when the step begins, with its backend settings in effect. Operations are recorded until it is destroyed.
class ObservedStep {
 public:
  ObservedStep(StepTrace& trace, const ParameterStore& parameters);
  /// Of the step that begins: null unless it is the one to observe. That is the process's second step, since the first
  /// is full of one-off work, or the only one. `taken`: steps of this process so far; `to_come`: those still to take.
  static std::unique_ptr<ObservedStep> if_due(StepTrace& trace, const ParameterStore& parameters, int64_t taken,
                                              int64_t to_come);

  struct End {
    int64_t step = 0;                ///< that has ended
    const BatchSourceStats& loader;  ///< of the step
    const ParameterStore& parameters;
    const Optimizer& optimizer;
    int64_t gradient_bytes = 0;  ///< at the update, before gradients were cleared
  };
  /// A step that fails never gets here, and its trace has no step.
  void finish(const End& end);

 private:
  StepTrace& trace_;
  std::optional<StepObserver> observer_;  ///< from the end of the constructor on
};

}  // namespace trainopt
