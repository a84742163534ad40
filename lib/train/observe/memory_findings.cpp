#include "train/observe/memory_findings.h"

#include "base/units.h"

#include <algorithm>
#include <map>
#include <set>

namespace trainopt {
namespace {

constexpr int64_t kLeastSteps = 4;  ///< that must show the same, before it is called a leak
constexpr int64_t kSettling = 2;    ///< steps at the start that allocate what stays
constexpr size_t kPastPeaks = 32;
constexpr double kSpikeFactor = 1.25;
constexpr int64_t kLeastSpike = int64_t{1} << 20;

}  // namespace

std::string MemoryLeak::text() const {
  return fmt::format("leak: {} per step, allocated in {} and never released, in {}", human_bytes(bytes_per_step), where,
                     counted(steps, "step"));
}

std::string MemorySpike::text() const {
  return fmt::format("spike in step {}: {} were live, usually {}; {} more than usual in {}", step,
                     human_bytes(static_cast<double>(peak_bytes)), human_bytes(static_cast<double>(usual_bytes)),
                     human_bytes(static_cast<double>(grown_bytes)), where);
}

std::vector<MemoryLeak> memory_leaks(const MemoryRecorder::Contents& contents) {
  const int64_t first = contents.first_step + kSettling, last = contents.last_step - kSettling;
  if (contents.first_step == 0 || last - first + 1 < kLeastSteps) return {};
  struct Left {
    int64_t bytes = 0;
    std::set<int64_t> steps;
  };
  std::map<size_t, Left> left;
  for (const auto& [address, block] : contents.blocks) {
    if (block.step < first || block.step > last) continue;
    left[block.label].bytes += block.bytes;
    left[block.label].steps.insert(block.step);
  }
  std::vector<MemoryLeak> leaks;
  for (const auto& [label, what] : left) {
    const auto steps = static_cast<int64_t>(what.steps.size());
    if (steps < kLeastSteps || 5 * steps < 4 * (last - first + 1)) continue;
    leaks.push_back({.where = where_text(contents.labels[label]),
                     .bytes_per_step = static_cast<double>(what.bytes) / static_cast<double>(steps),
                     .steps = steps});
  }
  std::sort(leaks.begin(), leaks.end(),
            [](const MemoryLeak& a, const MemoryLeak& b) { return a.bytes_per_step > b.bytes_per_step; });
  return leaks;
}

/// The step with the median peak of those before.
const MemorySpikes::Peak& MemorySpikes::usual() const {
  std::vector<const Peak*> ordered;
  for (const Peak& peak : past_) ordered.push_back(&peak);
  const auto middle = ordered.begin() + static_cast<std::ptrdiff_t>(ordered.size() / 2);
  std::nth_element(ordered.begin(), middle, ordered.end(),
                   [](const Peak* a, const Peak* b) { return a->bytes < b->bytes; });
  return **middle;
}

std::optional<MemorySpike> MemorySpikes::add(int64_t step, std::vector<std::pair<MemoryLabel, int64_t>> by_label) {
  if (++steps_ <= kSettling) return std::nullopt;
  Peak now{0, std::move(by_label)};
  for (const auto& [label, bytes] : now.by_label) now.bytes += bytes;
  std::optional<MemorySpike> spike;
  if (static_cast<int64_t>(past_.size()) >= kLeastSteps) {
    const Peak& before = usual();
    if (static_cast<double>(now.bytes) > kSpikeFactor * static_cast<double>(before.bytes) &&
        now.bytes - before.bytes >= kLeastSpike) {
      spike = MemorySpike{.step = step, .peak_bytes = now.bytes, .usual_bytes = before.bytes, .where = {}};
      for (size_t i = 0; i < now.by_label.size(); ++i) {  // labels are only ever appended
        const auto& [label, bytes] = now.by_label[i];
        const int64_t grown = bytes - (i < before.by_label.size() ? before.by_label[i].second : 0);
        if (grown <= spike->grown_bytes) continue;
        spike->grown_bytes = grown;
        spike->where = where_text(label);
      }
    }
  }
  past_.push_back(std::move(now));
  if (past_.size() > kPastPeaks) past_.pop_front();
  return spike;
}

}  // namespace trainopt
