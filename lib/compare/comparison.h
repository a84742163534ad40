// Two arms take turns until it is decided which is faster. This is what the program is for.
#pragma once

#include "compare/baseline.h"
#include "statistics/interval.h"
#include "statistics/verdict.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt {

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

/// Lets A and B take turns until the verdict is decided, `until` has come, or the observer stops it. Throws what the
/// arms throw.
Comparison compare(const Baseline& baseline, WarmArm b, const CompareOptions& options, Clock::time_point until,
                   const Observer& observer);

/// Verdict, ratio and interval from the blocks, by the rule by which they were first judged.
void judge_blocks(Comparison& comparison);

}  // namespace trainopt
