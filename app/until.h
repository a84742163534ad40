// The options of `compare --until target`.
#pragma once

#include "app/arguments.h"
#include "app/compare_output.h"
#include "recipe/recipe.h"
#include "statistics/time_to_target.h"
#include "statistics/verdict.h"
#include "train/evaluation.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace trainopt {

struct UntilOptions {
  std::string until;  ///< "target", or empty: not asked for
  int64_t seeds = 10;

  explicit operator bool() const { return !until.empty(); }
  /// Call after the command's other options, because it excludes those of measurements in turns. `help`: of --until.
  void add_to(CLI::App& command, const std::string& help);
};

// Runs to train.target, and what several seeds of two recipes say together.

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

// trainopt compare A B --until target: which of two recipes reaches train.target sooner, over several seeds.

/// Why --fail-on is refused.
inline constexpr const char* kOwnVerdict = "--until target has its own verdict; read it with --json";

struct UntilArguments {
  NamedRecipe a, b;
  int64_t seeds = 10;
  double level = 0.95, min_effect = 0.01;
};

/// Runs both recipes to their target in processes of their own, in turn, with the same seeds; prints and writes the
/// result. Returns the exit code. Throws UserError for a mistake in the arguments before anything is created, and the
/// failure of a run other than divergence.
int compare_until(const UntilArguments& arguments, const CompareOutput& output, const OutputOptions& console);

/// Prints what compare_until() or ablate_until() wrote to `folder`; returns the exit code.
int show_until(const std::filesystem::path& folder, const CompareOutput& output);

// trainopt ablate RECIPE --until target: what each switch that changes the mathematics is worth for the time to
// train.target, within the full recipe.

/// Runs the recipe, and the recipe without each of those switches, to its target in processes of their own, in turn,
/// with the same seeds; prints and writes the result. All intervals together hold at `level`. Returns the exit code.
/// Throws UserError for a mistake in the arguments before anything is created, and for the failure of a run other than
/// divergence.
int ablate_until(const Recipe& recipe, int64_t seeds, double level, double min_effect, const CompareOutput& output,
                 const OutputOptions& console);

}  // namespace trainopt
