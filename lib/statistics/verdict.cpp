#include "statistics/verdict.h"

#include "base/error.h"
#include "statistics/signed_rank.h"
#include "statistics/welch.h"

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

/// The share of the error budget that may have been spent by looks 0, 1, … Little is spent early, when few turns decide
/// only what is obvious; half is left after the sixth look (60 measurements) for comparisons that need more.
double spent_share(int look) {
  constexpr double kFirst[] = {0, 0.02, 0.04, 0.08, 0.2, 0.5};
  constexpr int kLast = 5;
  return look <= kLast ? kFirst[look] : 1 - (1 - kFirst[kLast]) * std::pow(0.7, look - kLast);
}

/// Acceptable probability of missing stalls altogether.
constexpr double kMissed = 0.1;
/// How many more times the slowest turn of the faster arm counts if the other arm has none like it.
constexpr double kStallAllowance = 2;

/// The time that undetected stalls may cost after `turns` turns of an arm, as a share of the arm's time.
double unseen_stalls(const SequentialOptions& options, int64_t turns) {
  return turns < kTurnsToSeeStalls ? options.longest_stall / stalls_missed(turns) : 0;
}

/// The end of the interval of ratios between `accepted`, which is inside, and `rejected`, which is outside. By
/// bisection.
template <class Rejects>
double end_between(double accepted, double rejected, Rejects&& rejects) {
  for (int i = 0; i < 40; ++i) {
    const double middle = std::sqrt(accepted * rejected);
    (rejects(middle) ? rejected : accepted) = middle;
  }
  return accepted;
}

/// The end of the interval beyond `accepted`, searched for in growing steps that begin with the factor `step`. nullopt:
/// there is none.
template <class Rejects>
std::optional<double> find_end(double accepted, double step, Rejects&& rejects) {
  double before = accepted;
  for (double ratio = accepted * step; ratio > 1e-6 && ratio < 1e6; before = ratio, step *= step, ratio *= step)
    if (rejects(ratio)) return end_between(before, ratio, rejects);
  return std::nullopt;
}

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

int64_t measurements_at_look(int look) {
  int64_t count = 8;
  for (int i = 0; i < look; ++i) count += count / 2;
  return count;
}

double stalls_missed(int64_t turns) {
  TRAINOPT_CHECK(turns > 0);
  return -static_cast<double>(turns) / std::log(kMissed);
}

SequentialVerdict::SequentialVerdict(SequentialOptions options)
    : options_(options), test_(1 - options.level, options.seed) {
  TRAINOPT_CHECK(options.level > 0 && options.level < 1 && options.min_effect >= 0 && options.longest_stall >= 0);
}

void SequentialVerdict::add(const Measurement& measurement) {
  const auto& [times, longest, turns] = measurement;
  TRAINOPT_CHECK(!finished_ && turns > 0 && std::isfinite(times.a) && std::isfinite(times.b) && times.a > 0 &&
                 times.b > 0);
  pairs_.push_back(times);
  longest_turn_ = {std::max(longest_turn_.a, longest.a), std::max(longest_turn_.b, longest.b)};
  turns_ += turns;
  if (measurements() == measurements_at_look(looks_)) look((1 - options_.level) * spent_share(looks_++));
}

void SequentialVerdict::finish() {
  TRAINOPT_CHECK(!finished_);
  finished_ = true;
  if (!pairs_.empty()) look(1 - options_.level);
}

void SequentialVerdict::look(double spent) {
  PairedTimes total;
  for (const PairedTimes& pair : pairs_) total = {total.a + pair.a, total.b + pair.b};
  const auto count = static_cast<double>(pairs_.size()), turns = static_cast<double>(turns_);
  // Converts a turn's time into the unit of the totals, which have one entry per measurement.
  const double measurements_per_turn = count / turns;
  const double beyond_a = longest_turn_.a - total.a / count, beyond_b = longest_turn_.b - total.b / count;
  const PairedTimes stall_allowance{kStallAllowance * measurements_per_turn * std::max(0.0, beyond_a - beyond_b),
                                    kStallAllowance * measurements_per_turn * std::max(0.0, beyond_b - beyond_a)};
  const double unseen = unseen_stalls(options_, turns_);
  test_.look(pairs_, spent, stall_allowance, {unseen * total.a, unseen * total.b});
  looked_.emplace_back(pairs_.size(), spent - spent_);
  spent_ = spent;
}

Verdict SequentialVerdict::judge_looks(bool charge_last) const {
  const double bound = 1 + options_.min_effect;
  if (test_.rejects_as_too_low(1 / bound, charge_last) && test_.rejects_as_too_high(bound, charge_last))
    return Verdict::no_effect;
  if (test_.rejects_as_too_low(1, charge_last)) return Verdict::pays;
  return test_.rejects_as_too_high(1, charge_last) ? Verdict::costs : Verdict::inconclusive;
}

Verdict SequentialVerdict::verdict() const {
  if (verdict_looks_ != test_.looks()) verdict_ = judge_looks(false);
  verdict_looks_ = test_.looks();
  return verdict_;
}

bool SequentialVerdict::decided() const {
  if (decided_looks_ == test_.looks()) return decided_;
  decided_looks_ = test_.looks();
  if (!options_.precision) return decided_ = judge_looks(true) != Verdict::inconclusive;
  const auto range = interval();
  const double bound = 1 + *options_.precision;
  return decided_ =
             turns_ >= kTurnsToSeeStalls && range && range->high <= ratio() * bound && range->low >= ratio() / bound;
}

double SequentialVerdict::ratio() const {
  TRAINOPT_CHECK(!pairs_.empty());
  const double ratio = total_ratio(pairs_);
  const auto range = interval();
  return range ? std::clamp(ratio, range->low, range->high) : ratio;
}

std::optional<Interval> SequentialVerdict::interval() const {
  if (interval_looks_ == test_.looks()) return interval_;
  interval_looks_ = test_.looks();
  const auto too_low = [&](double ratio) { return test_.rejects_as_too_low(ratio, false); };
  const auto too_high = [&](double ratio) { return test_.rejects_as_too_high(ratio, false); };
  // A ratio that no look has rejected: the current one or, if looks contradict each other, the nearest that remains.
  double inside = total_ratio(pairs_);
  if (interval_ && (too_low(inside) || too_high(inside))) inside = std::clamp(inside, interval_->low, interval_->high);
  if (too_low(inside) || too_high(inside)) return interval_;  // one look is wrong, within the budget: keep the older
  const auto low = find_end(inside, 1 / 1.01, too_low), high = find_end(inside, 1.01, too_high);
  if (low && high) interval_ = Interval{*low, *high};
  return interval_;
}

std::optional<Interval> SequentialVerdict::typical_interval() const {
  std::vector<double> logs;
  for (const PairedTimes& pair : pairs_) logs.push_back(std::log(pair.a / pair.b));
  std::optional<Interval> all;
  for (const auto& [count, error] : looked_) {
    const auto centre = signed_rank_interval(std::span(logs).first(count), 1 - error);
    if (!centre) continue;
    const Interval ratio{std::exp(centre->low), std::exp(centre->high)};
    const Interval both = all ? Interval{std::max(all->low, ratio.low), std::min(all->high, ratio.high)} : ratio;
    if (both.low <= both.high) all = both;
  }
  return all;
}

int64_t measurements_needed(double sd, const SequentialOptions& options, int64_t turns) {
  TRAINOPT_CHECK(sd >= 0 && options.min_effect > 0 && turns > 0);
  double spent = 0;
  for (int look = 0;; ++look) {
    const int64_t count = measurements_at_look(look);
    const auto degrees = static_cast<double>(count - 1);
    const double error = (1 - options.level) * spent_share(look);
    // Between the error this look adds and all that was spent: the looks overlap, so their errors do too.
    const double at_look = (error - spent + error) / 2;
    spent = error;
    const double unseen = unseen_stalls(options, count * turns);
    if (at_look <= 0 || unseen >= options.min_effect) continue;
    const double reach = student_quantile(at_look / 2, degrees) + student_quantile(0.1, degrees);
    if (reach * sd / std::sqrt(static_cast<double>(count)) <= std::log1p(options.min_effect - unseen)) return count;
  }
}

}  // namespace trainopt
