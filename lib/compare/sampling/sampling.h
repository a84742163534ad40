// Arms take turns, in rounds, until every pair of them is decided or the budget is spent. A pair's verdict ends the
// sampling here; results are judged by judge() (compare/comparison.h).
#pragma once

#include "compare/baseline.h"
#include "compare/sampling/round.h"
#include "statistics/verdict.h"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace trainopt {

/// Two arms, by their indices; `a` < `b`.
struct PairOfArms {
  size_t a = 0, b = 1;
};
/// All pairs of `arms` arms: 0 1, 0 2, … 1 2, …
std::vector<PairOfArms> pairs_of(size_t arms);
/// The level of each pair such that all pairs together have `level` (Bonferroni).
double pair_level(double level, size_t arms);

/// The sequential verdict of every pair of arms.
class PairVerdicts {
 public:
  PairVerdicts(size_t arms, const SequentialOptions& of_each);

  /// One measurement of every pair: a round, or all rounds of a set.
  void add(std::span<const Round> rounds);
  /// Computes the intervals of the last look, on several cores. It must be called at every look: an interval depends on
  /// the earlier ones if looks contradict each other.
  void look() const;
  /// One last look, as in SequentialVerdict.
  void finish();

  bool decided() const;
  size_t decided_pairs() const;
  /// Whether this ratio is settled for every arm against the first (SequentialVerdict::settles).
  bool settled(double ratio) const;
  int64_t measurements() const { return verdicts_.front().measurements(); }
  int looks() const { return verdicts_.front().looks(); }
  const std::vector<PairOfArms>& pairs() const { return pairs_; }
  const SequentialVerdict& of(size_t pair) const { return verdicts_[pair]; }

 private:
  std::vector<PairOfArms> pairs_;
  std::vector<SequentialVerdict> verdicts_;
};

/// What the arms did, before it is judged.
struct Sampling {
  std::vector<std::string> names;
  std::vector<ArmFacts> facts;  ///< in own processes, times to the first step and memory are means over the sets
  std::vector<Round> rounds;
  bool own_processes = false;  ///< if true, a measurement is a set of processes, not a round
  double longest_stall = 9;    ///< longest stall, in turns, that must not go undetected before sampling ends
  double seconds = 0;
  /// Why sampling ended: decided, precision, budget, repeats, processes (as many as asked), stopped, failed;
  /// unfinished: it has not.
  std::string ended;
  std::string failure;  ///< the arm's message, if sampling ended because an arm failed
  ExitCode failure_code = ExitCode::done;
};

/// Called at every look in one process, and after every set of processes. `ended` is empty if sampling continues.
using LookCallback = std::function<void(const Sampling&, const PairVerdicts&)>;

/// Rounds in this process. Throws what the arms throw in the first round; a later failure ends sampling and is
/// recorded.
Sampling sample_rounds(std::span<const WarmArm> arms, const CompareOptions& options, Clock::time_point until,
                       const Observer& observer, const LookCallback& look);

/// The longest stall that must not go undetected, in turns of `turn_s` seconds.
double longest_stall(double turn_s);
/// The options of each pair's verdict.
SequentialOptions verdict_options(const CompareOptions& options, double longest_stall, size_t arms);
/// Why to end sampling, or empty; `one_more`: when one more measurement would end.
std::string stop_reason(const PairVerdicts& verdicts, const CompareOptions& options, Clock::time_point one_more,
                        Clock::time_point until, const Observer& observer);
/// Records why an arm failed and that sampling ended, unless the user stopped it.
void keep_failure(Sampling& sampling, const std::exception& error, const Observer& observer);

}  // namespace trainopt
