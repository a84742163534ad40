// The learning rate as a pure function of the step: Hugging Face's get_{constant,linear,cosine}_schedule_with_warmup.
#pragma once

#include "train/config.h"

#include <cstdint>

namespace trainopt {

class Schedule {
 public:
  /// `total_steps`: step at which linear and cosine reach 0; ignored by constant.
  Schedule(const SchedulerConfig& config, double base_learning_rate, int64_t total_steps);

  /// Learning rate of step `step`, counted from 1: base × factor(step − 1).
  double learning_rate(int64_t step) const;
  /// lr_lambda(n) of the formula, n from 0.
  double factor(int64_t n) const;

 private:
  ScheduleKind kind_;
  int64_t warmup_, total_;
  double base_;
};

}  // namespace trainopt
