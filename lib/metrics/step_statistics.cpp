#include "metrics/step_statistics.h"

#include "base/units.h"
#include "metrics/summary.h"

#include <fmt/format.h>

#include <cmath>

namespace trainopt {
namespace {

Piece merged(const Piece& a, const Piece& b) { return {a.samples + b.samples, a.seconds + b.seconds}; }

}  // namespace

void StepSeries::add(Piece step) {
  open_ = merged(open_, step);
  if (++open_steps_ < steps_per_piece_) return;
  pieces_.push_back(open_);
  open_ = {};
  open_steps_ = 0;
  if (pieces_.size() < kMaxPieces) return;
  for (size_t i = 0; i < kMaxPieces / 2; ++i) pieces_[i] = merged(pieces_[2 * i], pieces_[2 * i + 1]);
  pieces_.resize(kMaxPieces / 2);
  steps_per_piece_ *= 2;
}

std::vector<Piece> StepSeries::pieces() const {
  std::vector<Piece> all = pieces_;
  if (open_steps_ > 0) all.push_back(open_);
  return all;
}

std::optional<double> LossSpikes::add(double loss) {
  if (!std::isfinite(loss)) return std::nullopt;
  if (before_.size() >= kMinLosses) {
    std::vector<double> values(before_.begin(), before_.end());
    const double median = percentile(values, 0.5);
    if (median > 0 && loss > kFactor * median) {
      before_.clear();
      return median;
    }
  }
  before_.push_back(loss);
  if (before_.size() > kWindow) before_.pop_front();
  return std::nullopt;
}

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
