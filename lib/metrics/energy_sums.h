// The energy of a run's steps, and the samples that it paid for.
#pragma once

#include "metrics/record.h"

#include <optional>

namespace trainopt {

/// Adds up the energy that steps report. A reading covers the time since the one before and so belongs to several
/// steps: samples are counted from one reading to another, and the first reading only marks where counting starts.
class EnergySums {
 public:
  void add(const StepRecord& row);
  /// Adds the steps that follow these ones.
  void add(const EnergySums& following);

  double joules() const { return joules_; }    ///< between the first reading and the last
  double samples() const { return samples_; }  ///< of the steps in between
  bool any() const { return samples_ > 0; }

 private:
  struct Reading {
    double joules = 0, samples_before = 0;  ///< samples since the reading before, or since the start
  };
  std::optional<Reading> first_;
  double joules_ = 0, samples_ = 0;
  double samples_after_ = 0;  ///< since the last reading
};

}  // namespace trainopt
