#include "statistics/verdict.h"

#include "base/error.h"
#include "statistics/paired.h"
#include "statistics/student.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trainopt {
namespace {

/// Share of what is left of the error budget that each look takes. At 95 % the first look gets 0.01, enough to decide
/// with 8 blocks (all of one sign have probability 2/256), and the sixth, at 60 blocks, still 0.0033.
constexpr double kShare = 0.2;

double left_before(int look) { return std::pow(1 - kShare, look); }

}  // namespace

std::string_view text(Verdict verdict) {
  switch (verdict) {
    case Verdict::pays:
      return "pays";
    case Verdict::costs:
      return "costs";
    case Verdict::no_effect:
      return "no effect";
    case Verdict::inconclusive:
      break;
  }
  return "inconclusive";
}

Verdict judge(Interval ratio, double min_effect) {
  TRAINOPT_CHECK(min_effect >= 0 && ratio.low <= ratio.high);
  if (ratio.low >= 1 / (1 + min_effect) && ratio.high <= 1 + min_effect) return Verdict::no_effect;
  if (ratio.low > 1) return Verdict::pays;
  if (ratio.high < 1) return Verdict::costs;
  return Verdict::inconclusive;
}

int64_t blocks_at_look(int look) {
  int64_t blocks = 8;
  for (int i = 0; i < look; ++i) blocks += blocks / 2;
  return blocks;
}

SequentialVerdict::SequentialVerdict(SequentialOptions options) : options_(options) {
  TRAINOPT_CHECK(options.level > 0 && options.level < 1 && options.min_effect >= 0);
}

void SequentialVerdict::add(double log_ratio) {
  TRAINOPT_CHECK(!finished_ && std::isfinite(log_ratio));
  differences_.push_back(log_ratio);
  if (blocks() == blocks_at_look(looks_)) {
    look((1 - options_.level) * left_before(looks_) * kShare);
    ++looks_;
  }
}

void SequentialVerdict::finish() {
  TRAINOPT_CHECK(!finished_);
  finished_ = true;
  look((1 - options_.level) * left_before(looks_));
}

double SequentialVerdict::ratio() const {
  TRAINOPT_CHECK(!differences_.empty());
  const double mean =
      std::accumulate(differences_.begin(), differences_.end(), 0.0) / static_cast<double>(differences_.size());
  const double ratio = std::exp(mean);
  return interval_ ? std::clamp(ratio, interval_->low, interval_->high) : ratio;
}

void SequentialVerdict::look(double error) {
  const auto of_mean = paired_interval(differences_, 1 - error, options_.seed);
  if (!of_mean) return;
  const Interval now{std::exp(of_mean->low), std::exp(of_mean->high)};
  if (!interval_) {
    interval_ = now;
    return;
  }
  const Interval both{std::max(interval_->low, now.low), std::min(interval_->high, now.high)};
  // Two looks that exclude each other: one of them is wrong, within the budget. The older stands, as whoever acted on
  // it expects.
  if (both.low <= both.high) interval_ = both;
}

int64_t blocks_needed(double sd, const SequentialOptions& options) {
  TRAINOPT_CHECK(sd >= 0 && options.min_effect > 0);
  for (int look = 0;; ++look) {
    const int64_t blocks = blocks_at_look(look);
    const auto degrees = static_cast<double>(blocks - 1);
    const double error = (1 - options.level) * left_before(look) * kShare;
    const double reach = student_quantile(error / 2, degrees) + student_quantile(0.1, degrees);
    if (reach * sd / std::sqrt(static_cast<double>(blocks)) <= std::log1p(options.min_effect)) return blocks;
  }
}

}  // namespace trainopt
