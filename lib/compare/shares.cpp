#include "compare/shares.h"

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

/// The logarithm of a ratio and its variance (squared standard error); negative: unknown.
struct Logarithm {
  double value = 0, variance = 0;
};

Logarithm log_of(const Gain& gain) {
  return {std::log(*gain.ratio), gain.standard_error > 0 ? gain.standard_error * gain.standard_error : -1};
}

/// `weight`·(x + y).
Logarithm sum(double weight, const Logarithm& x, const Logarithm& y) {
  const bool known = x.variance >= 0 && y.variance >= 0;
  return {weight * (x.value + y.value), known ? weight * weight * (x.variance + y.variance) : -1};
}

Share share_of(const Logarithm& log, double reach) {
  Share share{.ratio = std::exp(log.value), .interval = {}};
  const double half = reach * std::sqrt(std::max(log.variance, 0.0));
  if (log.variance >= 0 && half > 0) share.interval = Interval{std::exp(log.value - half), std::exp(log.value + half)};
  return share;
}

}  // namespace

const char* const kShareRule =
    "a switch's share is the geometric mean of its gain alone and its gain in the stack, which is its Shapley value if "
    "switches interact in pairs only; a switch has none unless both were measured; the rest is what the shares "
    "together leave unexplained of the total";

void attribute(Ablation& ablation, double reach) {
  if (!ablation.total.ratio) return;
  Logarithm rest = log_of(ablation.total);
  for (auto& row : ablation.switches) {
    if (!row.alone.ratio || !row.in_stack.ratio) continue;  // one gain would pass for the mean of two
    const Logarithm share = sum(0.5, log_of(row.alone), log_of(row.in_stack));
    row.share = share_of(share, reach);
    rest = sum(1, rest, {-share.value, share.variance});
  }
  ablation.rest = share_of(rest, reach);
}

}  // namespace trainopt
