// One operation against its counterpart in float64, and that against central differences.
#pragma once

#include "debugging/gradcheck/deviation.h"
#include "debugging/gradcheck/gradient_case.h"
#include "train/precision.h"
#include "train/slot.h"

#include <optional>

namespace trainopt::gradcheck {

/// The parts that are checked, and how a step uses them.
struct Checked {
  const BuildContext& context;
  Parts ours, plain;
  std::unique_ptr<Precision> precision;
};

struct CheckedCase {
  int64_t samples = 0;     ///< samples compared on this rank
  double bound = 0;        ///< bound of the two errors below
  Deviation forward;       ///< the output's deviation
  Deviation backward;      ///< deviation of the gradient that deviates most
  std::string gradient;    ///< the input whose gradient that is
  bool repeatable = true;  ///< false: repeated, a failed computation gave different bits
  /// The largest error of float64's gradient along eight random directions, relative to its norm.
  double directions_error = 0;

  bool matches() const { return forward.relative <= bound && backward.relative <= bound; }
  bool passed() const { return matches() && directions_error <= kDirectionsBound; }
  /// The largest error ÷ its bound.
  double share_of_bound() const;
};

/// Null if the plan's part leaves this operation to libtorch. With over_ranks, every rank must call it.
std::optional<CheckedCase> check_case(const GradientCase& gradient_case, const Checked& checked);

}  // namespace trainopt::gradcheck
