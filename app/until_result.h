// Runs to train.target, and what several seeds of two recipes say together.
#pragma once

#include "recipe/recipe.h"
#include "statistics/time_to_target.h"
#include "statistics/verdict.h"
#include "train/evaluation.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// One run to the target.
struct UntilRun {
  RunToTarget time;
  int64_t steps = 0, samples = 0, resolution = 0;
  std::optional<double> value, energy_j, price;
  bool diverged = false;
};

struct UntilPair {
  int64_t seed;
  std::array<UntilRun, 2> runs;  ///< A, B
};

/// An arm as the user named it.
struct NamedRecipe {
  std::string name;
  Recipe recipe;
};

/// Trains in a process of its own, which writes to `folder`. nullopt: a signal ended it. Throws UserError for any
/// failure but divergence, naming `what`.
std::optional<UntilRun> run_to_target(const std::filesystem::path& folder, const std::string& what, Recipe recipe,
                                      int64_t seed);

/// What all pairs together say.
struct UntilResult {
  NamedRecipe a, b;
  double level = 0.95, min_effect = 0.01;
  Goal goal;
  std::vector<UntilPair> pairs;

  TargetRatio ratio() const {
    std::vector<PairToTarget> times;
    for (const UntilPair& pair : pairs) times.push_back({pair.runs[0].time, pair.runs[1].time});
    return target_ratio(times, level);
  }
  int64_t reached(size_t arm) const {
    return std::count_if(pairs.begin(), pairs.end(), [&](const UntilPair& p) { return p.runs[arm].time.reached; });
  }
  /// Of the runs of an arm that arrived; nullopt if none did, or none has the number.
  template <class Number>
  std::optional<double> median(size_t arm, Number number_of) const {
    std::vector<double> values;
    for (const UntilPair& pair : pairs)
      if (pair.runs[arm].time.reached)
        if (const std::optional<double> value = number_of(pair.runs[arm])) values.push_back(*value);
    if (values.empty()) return std::nullopt;
    std::sort(values.begin(), values.end());
    return (values[values.size() / 2] + values[(values.size() - 1) / 2]) / 2;
  }

  Verdict verdict() const;
};

std::optional<double> seconds_of(const UntilRun& run);
Json to_json(const UntilResult& result);
/// As `compare --until` prints it.
std::string until_text(const UntilResult& result);
/// "12.3 s, 400 steps", "not in 60.0 s" or "diverged".
std::string run_text(const UntilRun& run);
/// "0.69 (0.56–0.82)", or why there is no interval.
std::string ratio_text(const UntilResult& result);

}  // namespace trainopt
