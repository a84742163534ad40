#include "metrics/stragglers.h"

#include "metrics/summary.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainopt {

std::string Straggler::text() const {
  std::string message = fmt::format(
      "rank {} is a straggler: {:.1f} ms a step without communication, the others {:.1f} ms; the slowest in {:.0f} % "
      "of the steps",
      rank, busy_ms, others_ms, steps_pct);
  if (data_wait_ms > (busy_ms - others_ms) / 2)
    message += fmt::format("; {:.1f} ms of its time is waiting for data", data_wait_ms);
  return message;
}

void Stragglers::add(const std::vector<RankTimes>& ranks) {
  if (ranks.size() < 2) return;
  slow_.resize(ranks.size());
  ++steps_;
  const auto slowest = std::max_element(
      ranks.begin(), ranks.end(), [](const RankTimes& a, const RankTimes& b) { return a.busy_ms() < b.busy_ms(); });
  std::vector<double> others;
  for (auto rank = ranks.begin(); rank != ranks.end(); ++rank)
    if (rank != slowest) others.push_back(rank->busy_ms());
  const double median = percentile(others, 0.5);
  if (slowest->busy_ms() <= kFactor * median) return;
  Slow& slow = slow_[static_cast<size_t>(slowest - ranks.begin())];
  ++slow.steps;
  slow.busy_ms += slowest->busy_ms();
  slow.others_ms += median;
  slow.data_wait_ms += slowest->data_wait_ms;
}

std::optional<Straggler> Stragglers::found() const {
  const auto worst =
      std::max_element(slow_.begin(), slow_.end(), [](const Slow& a, const Slow& b) { return a.steps < b.steps; });
  if (steps_ < kMinSteps || worst == slow_.end() ||
      static_cast<double>(worst->steps) <= kShare * static_cast<double>(steps_))
    return std::nullopt;
  const auto times = static_cast<double>(worst->steps);
  return Straggler{.rank = worst - slow_.begin(),
                   .busy_ms = worst->busy_ms / times,
                   .others_ms = worst->others_ms / times,
                   .data_wait_ms = worst->data_wait_ms / times,
                   .steps_pct = 100 * times / static_cast<double>(steps_)};
}

}  // namespace trainopt
