// Which change of a recipe takes away which part of a run's time.
#pragma once

#include "advice/limit.h"
#include "optimizations/info.h"
#include "recipe/recipe_io.h"
#include "roofline/roofline.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// What rules conclude from.
struct Situation {
  const Recipe& recipe;
  const Plan& plan;
  const RunTimes& times;
  const Limit& limit;
  std::optional<Roofline> peaks = {};          ///< null: not measured
  std::optional<double> page_faults = {};      ///< of a step
  std::optional<double> memory_peak_pct = {};  ///< of the device's memory

  /// A part's share of the time, from 0 to 1. "computing" is compute, memory bandwidth and launches together. "update"
  /// has the starts of its own operations, which the limit counts as launches. "per step" is what every step takes
  /// whatever its batch: launches, update and exchange.
  double share(std::string_view part) const;
};

struct Rule {
  const char* part;  ///< of the time, from which the change saves: see Situation::share()
  const char* what;  ///< "load with more threads"
  /// Overrides to try; empty where the rule does not apply.
  std::function<std::vector<Words>(const Situation&)> changes;
  /// The share of the part that one of `changes` saves, from 0 to 1.
  std::function<double(const Situation&, const Words&)> saved;
  /// How training changes. Cutting a batch otherwise is new_math with batch-norm.
  Exactness exactness;
  const char* needs;  ///< beyond what the plan checks; empty: nothing
  bool cuts_batch = false;
};

/// Every rule, in one table.
const std::vector<Rule>& rules();

struct Proposal {
  const Rule* rule = nullptr;
  Words change;
  Exactness exactness = Exactness::same_bits;
  double ratio = 1;            ///< estimated throughput after the change ÷ before
  bool stands_out = false;     ///< the gain is above the noise of the run's speed
  std::optional<double> from;  ///< the number that the change's first word replaces; null: not a number
  std::string evidence;        ///< "the loader is 31 % of the time"
};

/// Changes that would have an effect here, the most promising first. Those that a comparison would call *no effect* by
/// their estimate are left out.
std::vector<Proposal> propose(const Situation& situation);
/// Without the alternatives of a rule's best change.
std::vector<Proposal> best_of_each_rule(const std::vector<Proposal>& proposals);

}  // namespace trainopt
