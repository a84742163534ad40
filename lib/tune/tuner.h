// Changes a recipe, measures each change against the best so far, and keeps what pays.
#pragma once

#include "base/json.h"
#include "optimizations/info.h"
#include "recipe/recipe_io.h"
#include "statistics/spread.h"
#include "statistics/verdict.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// A change to try.
struct Candidate {
  std::string what;  ///< "load with more threads"
  Words change;
  std::optional<double> from = {};  ///< the number that the first word replaces; null: not a number
  double estimate = 1;              ///< expected ratio
  Exactness exactness = Exactness::same_bits;
  std::string evidence;
};

struct Diagnosis {
  std::string limit;                  ///< one line
  std::vector<Candidate> candidates;  ///< the most promising first
};

/// A comparison of a candidate with the best so far.
struct Trial {
  Verdict verdict = Verdict::inconclusive;
  std::optional<double> ratio;  ///< how many times better: of throughputs; for less memory, of bytes before ÷ after
  std::optional<double> speed;  ///< for less memory: throughput after ÷ before
  std::optional<Interval> interval;
  std::optional<bool> numbers_agree;  ///< null: not compared
  bool no_time_for_numbers = false;   ///< they could be compared, with more time
  std::string failure;                ///< why there is no comparison: refused, out of memory, crashed
};

struct TuningStep {
  Candidate candidate;
  Trial trial;
  double level = 0;  ///< level of the interval
  bool kept = false;
  std::string reason;  ///< why it was kept, or not
};

/// What the tuner asks of the machine.
class TuningBench {
 public:
  virtual ~TuningBench() = default;
  /// Diagnoses the recipe with these changes. Throws UserError if it cannot run.
  virtual Diagnosis diagnose(const Words& changes) = 0;
  /// The recipe with `best` (A) and with `changed` (B). A failure is a result. `look`: how often this change was
  /// compared before; each look may take longer than the one before.
  virtual Trial compare(const Words& best, const Words& changed, double level, int64_t look) = 0;
  /// Whether the time for trials is up, or the user has stopped the tuning.
  virtual bool over() const = 0;
  virtual bool stopped() const { return false; }  ///< whether the user stopped the tuning
};

struct TuningOptions {
  double level = 0.95;          ///< 1 − the chance that a change without effect is kept, over all trials together
  bool allow_new_math = false;  ///< try what changes the training
};

/// Values of Tuning::ended that commands ask for.
inline constexpr const char* kTuningTimeIsUp = "the time is up";
inline constexpr const char* kTuningStopped = "stopped";

struct Tuning {
  std::vector<TuningStep> steps;
  std::vector<std::string> limits;     ///< limits by diagnosis
  std::vector<Candidate> not_allowed;  ///< new_math, without allow_new_math
  /// "nothing left to try", "the time is up", "stopped", or "no further trial could be told from chance": as many were
  /// made as kHighestLevel allows, 52 at a level of 95 %.
  std::string ended;

  /// The overrides of all steps that were kept.
  Words change() const;
};

/// The level of the `number`-th trial, from 1. The errors 1 − level of all trials, however many there are, sum to
/// 1 − `level`: they are number^(−3/2) / ζ(3/2) of it.
double level_of_trial(double level, size_t number);

/// `words` with those of `more`, which replace earlier ones for the same key.
Words merged(const Words& words, const Words& more);

/// How often a change is compared at most.
inline constexpr int64_t kMostLooks = 3;

/// Every candidate gets a short look first, the most promising one first. Of a number, what lies beyond a value that
/// did not pay is not tried. Candidates that seemed to pay, but were not decided, get longer looks once there is no
/// other left. A change after which the recipe does not run is taken back. Continues `so_far`, whose steps are not
/// repeated; a trial that the user stops does not count. `keep` is called after every step.
Tuning tune(TuningBench& bench, const TuningOptions& options, Tuning so_far,
            const std::function<void(const Tuning&)>& keep);

/// {limits, steps: [{what, change, estimate, evidence, exactness, ratio, interval, speed, level, kept, reason}],
/// not_allowed, ended}, and back.
Json to_json(const Tuning& tuning);
/// Throws Json::exception.
Tuning tuning_from(const Json& json);
/// {what, change, estimated_ratio, exactness, evidence}, as in the advice of a run's summary.
Candidate candidate_from(const Json& advice);

// A recipe's text with a comment at each changed line.

/// `yaml`: a resolved recipe (recipe_yaml()). `comments`: by key, "data.num_workers"; one line each.
std::string annotated(const std::string& yaml, const std::map<std::string, std::string>& comments);

}  // namespace trainopt
