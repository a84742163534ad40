#include "support/happens_before.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainopt::test {
namespace {

std::string name_of(Queue queue) { return queue == kHost ? "the host" : fmt::format("stream {}", queue); }

int64_t at(const HappensBefore::Clock& clock, Queue queue) {
  const auto found = clock.find(queue);
  return found == clock.end() ? 0 : found->second;
}

bool overlap(const Range& a, const Range& b) { return a.begin < b.end && b.begin < a.end; }
bool covers(const Range& outer, const Range& inner) { return outer.begin <= inner.begin && inner.end <= outer.end; }

}  // namespace

void HappensBefore::access(Queue queue, const std::string& what, const std::vector<Range>& reads,
                           const std::vector<Range>& writes) {
  ++count_;
  if (queue != kHost) wait(queue, clocks_[kHost]);  // work starts after it was queued
  const int64_t time = ++clocks_[queue][queue];
  for (const Range& range : reads) compare({queue, time, false, what, range});
  for (const Range& range : writes) compare({queue, time, true, what, range});
}

void HappensBefore::compare(const Access& mine) {
  if (mine.range.begin == mine.range.end) return;
  const Clock& known = clocks_[mine.queue];
  for (const Access& other : past_)
    if (overlap(mine.range, other.range) && (mine.writes || other.writes) && at(known, other.queue) < other.at)
      problems_.push_back(fmt::format("{} {} memory in '{}' that {} may still be {} in '{}'", name_of(mine.queue),
                                      mine.writes ? "writes" : "reads", mine.what, name_of(other.queue),
                                      other.writes ? "writing" : "reading", other.what));
  if (mine.writes)  // whoever comes after this write comes after what it overwrites
    std::erase_if(past_, [&](const Access& other) { return covers(mine.range, other.range); });
  past_.push_back(mine);
}

void HappensBefore::forget(const Range& range) {
  std::erase_if(past_, [&](const Access& other) { return overlap(range, other.range); });
}

HappensBefore::Clock HappensBefore::now(Queue queue) const {
  const auto found = clocks_.find(queue);
  return found == clocks_.end() ? Clock{} : found->second;
}

void HappensBefore::wait(Queue queue, const Clock& event) {
  Clock& clock = clocks_[queue];
  for (const auto& [other, time] : event) clock[other] = std::max(at(clock, other), time);
}

bool HappensBefore::host_knows(const Clock& event) const {
  const Clock known = now(kHost);
  return std::all_of(event.begin(), event.end(),
                     [&](const auto& each) { return at(known, each.first) >= each.second; });
}

}  // namespace trainopt::test
