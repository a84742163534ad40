// Two arms take turns until it is decided which is faster. This is what the program is for.
#pragma once

#include "base/clock.h"
#include "compare/arm.h"
#include "compare/numerics.h"
#include "statistics/interval.h"
#include "statistics/verdict.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

struct CompareOptions {
  double level = 0.95;             ///< 1 − the chance of a wrong "pays" or "costs"
  double min_effect = 0.01;        ///< what is smaller is no effect
  std::optional<int64_t> repeats;  ///< exactly so many blocks, decided or not
  int64_t warmup_steps = 10;       ///< of each arm, left out
  int64_t noise_blocks = 8;        ///< of A against its reseeded twin, before B; 0: the twin only lends the tolerances
  double turn_s = 0.25;            ///< a turn takes at least so long, and at least a step
  uint64_t seed = 0;               ///< of the coins
};

/// The A/A phase: A against the same recipe made again with other batches.
struct NoiseFloor {
  double ratio = 1;
  std::optional<Interval> interval;
  double block_sd_pct = 0;  ///< scatter of one block's ratio
  int64_t blocks = 0;
};

struct ArmResult {
  std::string name;
  ArmFacts facts;
  double samples_per_s = 0, data_wait_pct = 0;  ///< over the measured blocks
  std::optional<double> step_ms_p50;
};

struct Comparison {
  Verdict verdict = Verdict::inconclusive;
  double ratio = 1;  ///< B's throughput over A's
  std::optional<Interval>
      interval;  ///< of it, valid at every moment the sampling might have ended; null: too few blocks
  double level = 0.95, min_effect = 0.01;
  uint64_t seed = 0;  ///< of the coins
  std::vector<Block> blocks;
  std::optional<NoiseFloor> noise;
  std::optional<Numerics> numerics;  ///< null where they were not asked for
  ArmResult a, b;
  bool own_processes = false;
  double seconds = 0;  ///< of the whole comparison
  std::string ended;   ///< why sampling ended: decided, budget, repeats, stopped
  std::vector<std::string> warnings;
};

struct Observer {
  std::function<void(const std::string&)> report = [](const std::string&) {};  ///< a line of progress
  const std::atomic<int>* stop = nullptr;                                      ///< not 0: end with what there is

  bool stopped() const { return stop && *stop != 0; }
};

/// An arm that has had its first turn, its warm-up.
struct WarmArm {
  std::string name;
  std::shared_ptr<Arm> arm;
  Turn first_steps;
  int64_t step_samples = 0;  ///< of a whole step
};
WarmArm warm_up(std::string name, std::shared_ptr<Arm> arm, const CompareOptions& options);

/// What every comparison with A needs: A itself, the first steps of its reseeded twin, and how A compares with itself.
struct Baseline {
  WarmArm a;
  std::filesystem::path twin_folder;  ///< empty: there was none
  Turn twin_first_steps;
  std::optional<NoiseFloor> noise;
};
/// `make_twin` may be empty. The twin is gone when this returns, so that no more than two arms live at a time. No block
/// of A against the twin begins after `noise_until`. Throws what the arms throw.
Baseline make_baseline(WarmArm a, const std::function<std::shared_ptr<Arm>()>& make_twin, const CompareOptions& options,
                       Clock::time_point noise_until, const Observer& observer);

/// Lets A and B take turns until the verdict is decided, `until` has come, or the observer stops it. Throws what the
/// arms throw.
Comparison compare(const Baseline& baseline, WarmArm b, const CompareOptions& options, Clock::time_point until,
                   const Observer& observer);

/// Verdict, ratio and interval from the blocks, by the rule by which they were first judged.
void judge_blocks(Comparison& comparison);

}  // namespace trainopt
