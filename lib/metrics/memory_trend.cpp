#include "metrics/memory_trend.h"

#include "base/counted.h"
#include "base/units.h"

#include <fmt/format.h>

namespace trainopt {
namespace {

constexpr int64_t kSettlingSteps = 3, kLeastSteps = 20;
constexpr double kLeastMib = 1;

}  // namespace

void MemoryTrend::add(const StepRecord& row) {
  const auto& now = row[Metric::memory_allocated_mib];
  if (!now || row.step() <= kSettlingSteps) return;
  if (last_mib_) {
    ++steps_;
    if (*now > *last_mib_) ++rises_;
  }
  if (!first_mib_) first_mib_ = now;
  last_mib_ = now;
}

std::optional<std::string> MemoryTrend::warning() const {
  if (steps_ < kLeastSteps || 10 * rises_ < 9 * steps_ || *last_mib_ - *first_mib_ < kLeastMib) return std::nullopt;
  const double grown = (*last_mib_ - *first_mib_) * 0x1p20;
  return fmt::format(
      "tensors took {} more in each step, {} in {}, which may be a leak; 'profiler={{memory_snapshot: true, "
      "activities: "
      "[]}}' shows where it comes from",
      human_bytes(grown / static_cast<double>(steps_)), human_bytes(grown), counted(steps_, "step"));
}

}  // namespace trainopt
