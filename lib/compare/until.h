// Which of two recipes reaches train.target sooner, over several seeds: whole runs, in processes of their own. And what
// each part of a recipe that changes the mathematics is worth for that time.
#pragma once

#include "base/json.h"
#include "compare/baseline.h"
#include "recipe/recipe.h"
#include "statistics/time_to_target.h"
#include "statistics/verdict.h"
#include "train/evaluation.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
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
  std::string trained_on = {};  ///< EvaluationPlan's
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

struct UntilArguments {
  NamedRecipe a, b;
  int64_t seeds = 10;
  double level = 0.95, min_effect = 0.01;
};

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
  /// The median over the runs of an arm that arrived; nullopt if none did, or none has the number.
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
/// The text that `compare --until` prints.
std::string until_text(const UntilResult& result);

/// A result without pairs. Throws UserError for a mistake in the arguments.
UntilResult prepare_until(const UntilArguments& arguments);

/// Called with the result so far, after each seed.
template <class Result>
using KeepUntil = std::function<void(const Result& so_far)>;

/// Adds a pair for each seed: both recipes train in processes of their own, which write to `folder`, in turn; every
/// second seed begins with B. A signal ends the measurement early. Throws UserError for a failure of a run other than
/// divergence.
void run_until(UntilResult& result, int64_t seeds, const std::filesystem::path& folder, const Observer& observer,
               const KeepUntil<UntilResult>& keep);

/// A switch, or another part of the training that can be left out.
struct UntilPart {
  std::string name, off;  ///< the override that leaves it out
  UntilResult result;     ///< A: without it, B: the whole recipe
};
/// The parts of one recipe, whose intervals together hold at `level`.
struct UntilParts {
  std::vector<UntilPart> parts;
  double level = 0.95;
};

/// Every part of the recipe's training that changes the mathematics and can be left out, without pairs. Throws
/// UserError if there is none, and for a mistake in the arguments.
UntilParts prepare_until_parts(const Recipe& recipe, int64_t seeds, double level, double min_effect);

/// As run_until(): the whole recipe and the recipe without each part, with the same seeds. Each seed begins with
/// another of them.
void run_until_parts(UntilParts& parts, int64_t seeds, const std::filesystem::path& folder, const Observer& observer,
                     const KeepUntil<UntilParts>& keep);

Json to_json(const UntilParts& parts);
/// The text that `ablate --until` prints.
std::string until_text(const UntilParts& parts);

}  // namespace trainopt
