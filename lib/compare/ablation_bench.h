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

  /// B's throughput over A's, both made new, so that they begin with the same batch. `seconds`: for this cell.
  Cell measure(const SwitchSet& a, const SwitchSet& b, std::optional<Ceiling> b_without, double seconds);
  double seconds_left() const;
  /// Of the plain job against its twin; null before a cell with it.
  const std::optional<NoiseFloor>& noise() const { return noise_; }

 private:
  std::string name_of(const SwitchSet& on) const;
  ArmSpec spec(const SwitchSet& on, std::optional<Ceiling> without);
  /// A's side of a cell whose other arm has `b` on.
  Baseline baseline_of(const SwitchSet& on, const SwitchSet& b, Clock::time_point until);

  const AblationRequest& request_;
  SwitchSet all_;
  Machine machine_;
  const Observer& observer_;
  Observer quiet_;  ///< for the comparison within a cell: it stops as the other does and says nothing
  // The plain job's twins are made once each; their first steps serve every cell with the plain job.
  struct Twin {
    std::filesystem::path folder;
    Turn first_steps;
  };
  std::map<Yardstick, Twin> twins_;
  std::optional<NoiseFloor> noise_;
  int arms_ = 0;
};

}  // namespace trainopt
