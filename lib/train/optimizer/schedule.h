// The learning rate, and the momentum of schedules that cycle it, as pure functions of the step. Sources: the closed
// forms of torch.optim.lr_scheduler; Hugging Face's get_{constant,linear,cosine,inverse_sqrt,wsd}_schedule for
// constant, linear, cosine, inverse_sqrt and wsd, and for every warm-up.
#pragma once

#include "train/optimizer/schedule_config.h"

#include <cstdint>
#include <optional>

namespace trainopt {

class Schedule {
 public:
  struct Values {
    double learning_rate;
    std::optional<double> momentum;  ///< null: as the optimizer has it
  };

  /// `total_steps`: the step at which the schedule ends, ignored by those without an end. `steps_per_epoch`: used if
  /// config.interval is epoch. Throws UserError if the schedule's phases do not fit into its length.
  Schedule(const SchedulerConfig& config, double base_learning_rate, int64_t total_steps, int64_t steps_per_epoch = 1);

  /// The values in step `step`, counted from 1. After its end a schedule keeps its last values. Throws
  /// UserError(diverged) if the learning rate is larger than float32 can hold.
  Values at(int64_t step) const;

 private:
  SchedulerConfig config_;
  double base_;
  int64_t period_;  ///< steps in each of the schedule's counts
  int64_t length_;  ///< counts to the schedule's end
};

}  // namespace trainopt
