// The preparation of A for a comparison: A warmed up, and its differences from its own twin.
#pragma once

#include "base/clock.h"
#include "compare/arms/arm.h"
#include "compare/arms/arm_process.h"
#include "compare/numbers/numerics.h"
#include "statistics/spread.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace trainopt {

struct CompareOptions {
  double level = 0.95;              ///< 1 − the chance of a wrong "pays" or "costs"
  double min_effect = 0.01;         ///< smaller differences are no effect
  std::optional<double> precision;  ///< continue until both ends of the interval are this close to the ratio
  std::optional<double> boundary;   ///< continue until every interval against the first arm excludes it
  std::optional<int64_t> repeats;   ///< take exactly this many blocks, or pairs of processes, decided or not
  int64_t warmup_steps = 10;        ///< each arm's first steps, not measured
  int64_t twins = 4;                ///< twins of A whose first steps show how far rounding goes
  int64_t noise_blocks = 8;         ///< blocks of A against its last twin, before B; 0: none
  double turn_s = 0.25;             ///< minimum duration of a turn, which has at least one step
  uint64_t seed = 0;                ///< seeds the coin tosses
};

struct Comparison;

struct Observer {
  std::function<void(const std::string&)> report = [](const std::string&) {};  ///< a line of progress
  std::function<void(const std::string&)> now = [](const std::string&) {};     ///< what is done until the next call
  const std::atomic<int>* stop = nullptr;                                      ///< nonzero: stop and keep the results
  /// The result so far, from time to time: what is left if the process is killed.
  std::function<void(const Comparison&)> keep = [](const Comparison&) {};
  Explain explain = explain_plainly;  ///< explains a failure after the first block

  bool stopped() const { return stop && *stop != 0; }
};

/// A measurement may exceed its budget by so long, and by the step in progress: what is nearly done is better ended.
inline constexpr double kGraceS = 3;
/// The end of a measurement with this budget.
inline Clock::time_point with_grace(Clock::time_point until) {
  return until + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(kGraceS));
}
/// The limit of the turns of a measurement.
inline TurnLimit limit_of(Clock::time_point until, const Observer& observer) {
  return {.until = with_grace(until), .stopped = [stop = observer.stop] { return stop && *stop != 0; }};
}

/// The A/A test: A against its twin, which does the same work.
struct NoiseFloor {
  double ratio = 1;
  std::optional<Interval> interval;
  double block_sd_pct = 0;  ///< standard deviation of one block's ratio
  int64_t blocks = 0;
};

/// An arm after its first turn, the warm-up.
struct WarmArm {
  std::string name;
  std::shared_ptr<Arm> arm;
  Turn first_steps;
  int64_t step_samples = 0;  ///< samples in a full step
  int64_t period = 1;        ///< a turn takes a multiple of so many steps
};
WarmArm warm_up(std::string name, std::shared_ptr<Arm> arm, const CompareOptions& options);

struct BudgetTooShort : UserError {
  using UserError::UserError;
};

/// Warms up the arms of a measurement that has a limit. The first one shows how long a step takes; all take fewer first
/// steps than options.warmup_steps where those of all would take more than half of the time.
class WarmUp {
 public:
  /// `arms`: how many are needed; `twins`: as many more, if there is time. Given repeats, the time has no limit.
  WarmUp(const CompareOptions& options, const TurnLimit& limit, int64_t arms, int64_t twins);

  /// Creates the arm and lets it take its first steps, which the limit may cut short. Throws BudgetTooShort if it is
  /// the first arm, and the fewest steps of the arms needed and one round do not fit; and what `create` throws.
  WarmArm operator()(std::string name, const std::function<std::shared_ptr<Arm>()>& create);
  /// Warms up an arm that must be done by `until`. nullopt: its first steps were cut short.
  std::optional<WarmArm> twin(std::string name, const std::function<std::shared_ptr<Arm>()>& create,
                              Clock::time_point until);
  /// The first steps of every arm; nullopt: none is warm.
  const std::optional<int64_t>& steps() const { return steps_; }

 private:
  WarmArm warm(std::string name, const std::function<std::shared_ptr<Arm>()>& create, const TurnLimit& limit);
  /// Takes the first steps of the first arm, and decides how many all arms take. `start_s`: how long it took to be
  /// created.
  Turn probe(Arm& arm, double start_s);
  void require_time(int64_t taken, double step_s, double start_s) const;

  int64_t wanted_;
  TurnLimit limit_;
  double arms_, twins_;
  std::optional<int64_t> steps_;
};
/// Throws BudgetTooShort unless there are rounds or the user stopped the measurement.
void require_rounds(size_t rounds, const Observer& observer);

/// The first steps of A's twins of one kind.
struct Twins {
  struct FirstTurn {
    Turn turn;
    std::filesystem::path folder;
  };
  Yardstick yardstick = Yardstick::perturbed;
  std::vector<FirstTurn> first_turns;
  int64_t wanted = 0;  ///< how many there would have been with time for all
};
/// Creates the twin with a number, from 0, and warms it up; nullopt: there was no time for its first steps.
using MakeTwin = std::function<std::optional<WarmArm>(int64_t number)>;

/// What every comparison with A needs: A itself, its twins, and the noise floor.
struct Baseline {
  WarmArm a;
  Twins twins;
  std::optional<NoiseFloor> noise;
};
/// `make_twin` may be empty; it creates twins of the kind `yardstick`. Each is destroyed before the next, so that at
/// most two arms exist at a time. A twin that would still take its first steps at `until`, if they last as long as
/// those of A and of other twins, is not begun; nor is a block of A against the last twin after it. Throws what the
/// arms throw.
Baseline make_baseline(WarmArm a, const MakeTwin& make_twin, const CompareOptions& options, Clock::time_point until,
                       const Observer& observer, Yardstick yardstick = Yardstick::perturbed);

/// Compares the numbers of B's first steps with A's, with tolerances from the twins.
Numerics compare_with_twins(const Twins& twins, const WarmArm& a, const WarmArm& b);

}  // namespace trainopt
