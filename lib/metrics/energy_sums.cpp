#include "metrics/energy_sums.h"

namespace trainopt {

void EnergySums::add(const StepRecord& row) {
  EnergySums one;
  if (const auto& joules = row[Metric::energy_j])
    one.first_ = {.joules = *joules, .samples_before = static_cast<double>(row.step_samples)};
  else
    one.samples_after_ = static_cast<double>(row.step_samples);
  add(one);
}

void EnergySums::add(const EnergySums& following) {
  if (!following.first_) {
    samples_after_ += following.samples_after_;
    return;
  }
  if (first_) {
    joules_ += following.first_->joules;
    samples_ += samples_after_ + following.first_->samples_before;
  } else {
    first_ = {following.first_->joules, samples_after_ + following.first_->samples_before};
  }
  joules_ += following.joules_;
  samples_ += following.samples_;
  samples_after_ = following.samples_after_;
}

}  // namespace trainopt
