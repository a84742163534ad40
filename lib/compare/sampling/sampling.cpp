#include "compare/sampling/sampling.h"

#include "compare/output/comparison_text.h"
#include "compare/sampling/turn_taker.h"

#include <ATen/Parallel.h>

#include <algorithm>

namespace trainopt {

std::vector<PairOfArms> pairs_of(size_t arms) {
  std::vector<PairOfArms> pairs;
  for (size_t a = 0; a < arms; ++a)
    for (size_t b = a + 1; b < arms; ++b) pairs.push_back({a, b});
  return pairs;
}

double pair_level(double level, size_t arms) {
  const size_t pairs = arms * (arms - 1) / 2;
  return pairs == 1 ? level : 1 - (1 - level) / static_cast<double>(pairs);
}

PairVerdicts::PairVerdicts(size_t arms, const SequentialOptions& of_each)
    : pairs_(pairs_of(arms)), verdicts_(pairs_.size(), SequentialVerdict(of_each)) {}

void PairVerdicts::add(std::span<const Round> rounds) {
  for (size_t i = 0; i < pairs_.size(); ++i)
    verdicts_[i].add(measurement_of(blocks_of(rounds, pairs_[i].a, pairs_[i].b)));
}

void PairVerdicts::look() const {
  at::parallel_for(0, static_cast<int64_t>(verdicts_.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) verdicts_[static_cast<size_t>(i)].interval();
  });
}

void PairVerdicts::finish() {
  for (SequentialVerdict& verdict : verdicts_) verdict.finish();
}

bool PairVerdicts::decided() const { return decided_pairs() == verdicts_.size(); }

size_t PairVerdicts::decided_pairs() const {
  return static_cast<size_t>(
      std::count_if(verdicts_.begin(), verdicts_.end(), [](const SequentialVerdict& v) { return v.decided(); }));
}

bool PairVerdicts::settled(double ratio) const {
  for (size_t i = 0; i < pairs_.size(); ++i)
    if (pairs_[i].a == 0 && !verdicts_[i].settles(ratio)) return false;
  return true;
}

double longest_stall(double turn_s) {
  // A page-cache write or a pause of the clock may take 2.25 s; if turns are short, nine turns are assumed.
  constexpr double kStallSeconds = 2.25, kStallTurns = 9;
  return std::min(kStallTurns, kStallSeconds / turn_s);
}

SequentialOptions verdict_options(const CompareOptions& options, double longest_stall, size_t arms) {
  return {.level = pair_level(options.level, arms),
          .min_effect = options.min_effect,
          .precision = options.precision,
          .longest_stall = longest_stall,
          .seed = options.seed};
}

std::string stop_reason(const PairVerdicts& verdicts, const CompareOptions& options, Clock::time_point one_more,
                        Clock::time_point until, const Observer& observer) {
  if (observer.stopped()) return "stopped";
  if (options.repeats) return verdicts.measurements() >= *options.repeats ? "repeats" : "";
  if (verdicts.decided() && (!options.boundary || verdicts.settled(*options.boundary)))
    return options.precision ? "precision" : "decided";
  return one_more > until ? "budget" : "";
}

void keep_failure(Sampling& sampling, const std::exception& error, const Observer& observer) {
  sampling.ended = "stopped";
  if (observer.stopped()) return;
  const Failure failure = observer.explain(error);
  sampling.ended = "failed";
  sampling.failure = failure.message;
  sampling.failure_code = failure.code;
}

namespace {

/// "block 12, B +3.1 % so far", or "round 12, 4 of 10 pairs decided" of more than two arms.
std::string round_text(const PairVerdicts& verdicts) {
  const int64_t number = verdicts.measurements() + 1;
  if (verdicts.pairs().size() > 1)
    return fmt::format("round {}, {} of {} pairs decided", number, verdicts.decided_pairs(), verdicts.pairs().size());
  return number == 1 ? "block 1" : fmt::format("block {}, B {} so far", number, percent_faster(verdicts.of(0).ratio()));
}

}  // namespace

Sampling sample_rounds(std::span<const WarmArm> arms, const CompareOptions& options, Clock::time_point until,
                       const Observer& observer, const LookCallback& look) {
  const auto sampling_began = Clock::now();
  if (observer.stopped() || (!options.repeats && sampling_began > with_grace(until))) {
    Sampling none;
    none.ended = observer.stopped() ? "stopped" : "budget";
    return none;
  }
  catch_up(arms);
  const std::vector<int64_t> steps = turn_steps(arms, options.turn_s);
  Sampling all;
  all.longest_stall = longest_stall(turn_seconds(arms, steps));
  for (const WarmArm& arm : arms) {
    all.names.push_back(arm.name);
    all.facts.push_back(arm.arm->facts());
  }
  TurnTaker turns(arms, steps, options.seed);
  PairVerdicts verdicts(arms.size(), verdict_options(options, all.longest_stall, arms.size()));
  double round_s = 0;  // the longest so far: a round that would not end in time is not started
  for (int looks = 0; all.ended.empty();) {
    const auto began = Clock::now();
    observer.now(round_text(verdicts));
    try {
      if (Round round = turns.next(); round.ended_early) {
        all.ended = observer.stopped() ? "stopped" : "budget";
      } else {
        all.rounds.push_back(std::move(round));
        verdicts.add(std::span(all.rounds).last(1));
        round_s = std::max(round_s, seconds_since(began));
        all.ended = stop_reason(verdicts, options, after(round_s), until, observer);
      }
      for (size_t i = 0; i < arms.size() && !all.ended.empty(); ++i) all.facts[i] = arms[i].arm->facts();
    } catch (const std::exception& error) {  // named recovery: the rounds measured before it are kept
      if (all.rounds.empty()) throw;
      keep_failure(all, error, observer);
    }
    all.seconds = seconds_since(sampling_began);
    if (verdicts.looks() == looks) continue;  // also if it ended with a round that ended early
    looks = verdicts.looks();
    verdicts.look();
    look(all, verdicts);
  }
  return all;
}

}  // namespace trainopt
