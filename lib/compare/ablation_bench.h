// The cells of an ablation: each a comparison of two sets of switches, or a reason why there is none.
#pragma once

#include "compare/ablation.h"

#include <map>

namespace trainopt {

/// Switches that are on; all others of the recipe are at their defaults.
using SwitchSet = std::set<std::string>;

/// What a cell was: the comparison, or the reason in `gain`.
struct Cell {
  Gain gain;
  std::optional<Comparison> comparison;
};

class AblationBench {
 public:
  /// `all`: every switch that the recipe turns on and that does something here.
  AblationBench(const AblationRequest& request, SwitchSet all, const Machine& machine, const Observer& observer);

  /// The recipe with these alone. Throws RecipeErrors for a set that contradicts itself.
  Recipe recipe(const SwitchSet& on) const;
  /// Whether the set can be planned here.
  bool possible(const SwitchSet& on) const;

  /// B's throughput over A's, over at least two pairs of processes and as many as end within `seconds`. The gain has
  /// its pairs; judge_gains() gives it interval and verdict.
  Cell measure(const SwitchSet& a, const SwitchSet& b, std::optional<Ceiling> b_without, double seconds);
  double seconds_left() const;

 private:
  std::string name_of(const SwitchSet& on) const;
  ArmSpec spec(const SwitchSet& on, std::optional<Ceiling> without);
  Comparison compare_cell(const ArmSpec& a, const ArmSpec& b, const std::string& name_a, const std::string& name_b,
                          bool a_is_plain, double seconds);
  /// The twin of the plain job: made when it is first needed, one of each kind.
  const Baseline& twin_of_plain(const ArmSpec& plain, Yardstick kind);

  const AblationRequest& request_;
  SwitchSet all_;
  Machine machine_;
  const Observer& observer_;
  Observer quiet_;  ///< for the comparison within a cell: it stops as the other does and says nothing
  std::map<Yardstick, Baseline> twins_;  ///< without A; their first steps serve every cell with the plain job
  int arms_ = 0;
};

}  // namespace trainopt
