#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trainopt {

Schedule::Schedule(const SchedulerConfig& config, double base_learning_rate, int64_t total_steps)
    : kind_(config.name), warmup_(config.warmup_steps), total_(total_steps), base_(base_learning_rate) {}

double Schedule::learning_rate(int64_t step) const { return base_ * factor(step - 1); }

double Schedule::factor(int64_t n) const {
  if (n < warmup_) return static_cast<double>(n) / static_cast<double>(std::max<int64_t>(1, warmup_));
  const double length = static_cast<double>(std::max<int64_t>(1, total_ - warmup_));
  switch (kind_) {
    case ScheduleKind::constant:
      return 1.0;
    case ScheduleKind::linear:
      return std::max(0.0, static_cast<double>(total_ - n) / length);
    case ScheduleKind::cosine:
      return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * static_cast<double>(n - warmup_) / length)));
  }
  return 1.0;
}

}  // namespace trainopt
