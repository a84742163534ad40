// What every comparison with A needs before B comes: A warmed up, and how far A is from itself.
#pragma once

#include "base/clock.h"
#include "compare/arm.h"
#include "compare/numerics.h"
#include "statistics/interval.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace trainopt {

struct CompareOptions {
  double level = 0.95;              ///< 1 − the chance of a wrong "pays" or "costs"
  double min_effect = 0.01;         ///< what is smaller is no effect
  std::optional<double> precision;  ///< goes on until the interval's ends are so close to the ratio
  std::optional<int64_t> repeats;   ///< exactly so many blocks, or pairs of processes, decided or not
  int64_t warmup_steps = 10;        ///< of each arm, left out
  int64_t noise_blocks = 8;         ///< of A against its twin, before B; 0: the twin only lends the tolerances
  double turn_s = 0.25;             ///< a turn takes at least so long, and at least a step
  uint64_t seed = 0;                ///< of the coins
};

struct Observer {
  std::function<void(const std::string&)> report = [](const std::string&) {};  ///< a line of progress
  const std::atomic<int>* stop = nullptr;                                      ///< not 0: end with what there is

  bool stopped() const { return stop && *stop != 0; }
};

/// The A/A phase: A against its twin, which does the same work.
struct NoiseFloor {
  double ratio = 1;
  std::optional<Interval> interval;
  double block_sd_pct = 0;  ///< scatter of one block's ratio
  int64_t blocks = 0;
};

/// An arm that has had its first turn, its warm-up.
struct WarmArm {
  std::string name;
  std::shared_ptr<Arm> arm;
  Turn first_steps;
  int64_t step_samples = 0;  ///< of a whole step
};
WarmArm warm_up(std::string name, std::shared_ptr<Arm> arm, const CompareOptions& options);

/// What every comparison with A needs: A itself, the first steps of its twin, and how A compares with itself.
struct Baseline {
  WarmArm a;
  std::filesystem::path twin_folder;           ///< empty: there was none
  Yardstick yardstick = Yardstick::perturbed;  ///< which twin it was
  Turn twin_first_steps;
  std::optional<NoiseFloor> noise;
};
/// `make_twin` may be empty; what it makes is the twin of the kind `yardstick`. The twin is gone when this returns, so
/// that no more than two arms live at a time. No block of A against the twin begins after `noise_until`. Throws what
/// the arms throw.
Baseline make_baseline(WarmArm a, const std::function<std::shared_ptr<Arm>()>& make_twin, const CompareOptions& options,
                       Clock::time_point noise_until, const Observer& observer,
                       Yardstick yardstick = Yardstick::perturbed);

/// The numbers of B's first steps beside A's and the twin's.
Numerics numbers(const Baseline& baseline, const WarmArm& b);

}  // namespace trainopt
