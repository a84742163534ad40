#include "train/straggler_delay.h"

#include "base/error.h"
#include "metrics/summary.h"

#include <fmt/format.h>

namespace trainopt {

double StragglerDelay::after(int64_t step, double seconds) {
  if (step < first_) {
    before_.push_back(seconds);
    return 0;
  }
  if (before_.size() < kMeasuredSteps)
    throw UserError(
        fmt::format("--inject straggle measures the steps before the one that it names, and this process "
                    "took too few of them; name a later step: straggle@{}, measured {}, needed {}",
                    first_, before_.size(), kMeasuredSteps));
  return kShare * percentile(before_, 0.5);
}

}  // namespace trainopt
