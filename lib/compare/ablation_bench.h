// The cells of an ablation: each is a comparison of two sets of switches, or the reason why there is none.
#pragma once

#include "compare/ablation.h"

#include <map>

namespace trainopt {

/// Switches that are on; the recipe's other switches have their defaults.
using SwitchSet = std::set<std::string>;

/// Whether this switch of the request's recipe has its default value. With several ranks a plan always has a switch
/// that says how they exchange gradients.
bool is_default(const AblationRequest& request, const Recipe& recipe, const std::string& name);

/// The result of a cell: the comparison, or the reason in `gain`.
struct Cell {
  Gain gain;
  std::optional<Comparison> comparison;
};

class AblationBench {
 public:
  /// `all`: every switch that the recipe turns on and that does something here.
  AblationBench(const AblationRequest& request, SwitchSet all, ArmFactory& factory, const Observer& observer);

  /// The recipe with only these switches on. Throws RecipeErrors for a contradictory set.
  Recipe recipe(const SwitchSet& on) const;
  /// Whether the set can be planned here.
  bool possible(const SwitchSet& on) const;

  /// Measures B's throughput relative to A's over at least two pairs of processes, and as many more as fit into
  /// `seconds`. The gain has the pairs; judge_gains() adds interval and verdict.
  Cell measure(const SwitchSet& a, const SwitchSet& b, std::optional<Ceiling> b_without, double seconds);
  double seconds_left() const;

 private:
  std::string name_of(const SwitchSet& on) const;
  ArmSpec spec(const SwitchSet& on, std::optional<Ceiling> without);
  Comparison compare_cell(const ArmSpec& a, const ArmSpec& b, const std::string& name_a, const std::string& name_b,
                          bool a_is_plain, double seconds);
  /// The twin of the plain job: created when first needed, one of each kind.
  const Baseline& twin_of_plain(const ArmSpec& plain, Yardstick kind);

  const AblationRequest& request_;
  SwitchSet all_;
  ArmFactory& factory_;
  const Observer& observer_;
  Observer quiet_;  ///< for the comparison within a cell: stops together with observer_, reports nothing
  std::map<Yardstick, Baseline> twins_;  ///< without A; every cell with the plain job uses their first steps
  int arms_ = 0;
};

}  // namespace trainopt
