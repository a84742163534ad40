// Ablation: for each switch of a recipe, its gain alone, its gain within the full stack, and the switch with which it
// interacts most.
#pragma once

#include "compare/arms/make_arm.h"
#include "compare/comparison.h"
#include "config/load.h"
#include "statistics/cells.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace trainopt {

/// A measured ratio of throughputs, or the reason why there is none.
struct Gain {
  std::optional<double> ratio;       ///< above 1: faster with the switch
  std::optional<Interval> interval;  ///< simultaneous: all intervals of an ablation hold together
  Verdict verdict = Verdict::inconclusive;
  int64_t blocks = 0;
  CellPairs pairs;            ///< the log ratio of each pair of processes; empty if the arms share a process
  double standard_error = 0;  ///< standard error of the ratio's logarithm; 0: unknown
  std::string reason;         ///< why it was not measured: refused, out of memory, no time left

  Gain inverse() const;
};

/// The reason given for cells that the budget had no time for.
inline constexpr const char* kNoTimeLeft = "no time was left";
inline constexpr const char* kStopped = "stopped";
inline constexpr const char* kRankLost = "a rank failed before";

struct Interaction {
  std::string with;
  double ratio = 1;  ///< gain of both, divided by the product of their gains alone; above 1: they help each other
  std::optional<Interval> interval;  ///< computed from the intervals of the three gains
};

/// A factor of an ablation's total gain.
struct Share {
  double ratio = 1;
  std::optional<Interval> interval;
};

/// The gain of two switches together, relative to neither.
struct PairCell {
  std::string one, other;
  Gain gain;
};

struct SwitchRow {
  std::string name, requested;
  std::string no_effect;           ///< why it does nothing here, so nothing was measured; empty if it does something
  std::vector<std::string> needs;  ///< switches that had to be on with it (alone), or off with it (in the stack)
  Gain alone, in_stack;
  std::optional<Interaction> interaction;  ///< the strongest that was measured
  std::optional<Share> share;       ///< its share of the total (output/remarks.h); null: not both gains were measured
  std::optional<double> one_off_s;  ///< extra time to the first step with it: mean difference over pairs
  std::optional<int64_t> break_even_step;  ///< step after which the one-off cost is recovered; null: never, or unknown
  std::optional<double> memory_mib;        ///< extra peak memory of the process with it: mean difference over pairs
  std::optional<bool> numbers_agree;       ///< alone against plain; null: not comparable
  std::string numbers;                     ///< what differs
  Json receipt;                            ///< what the full stack showed: {requested, observed, effective, reason}
};

struct CeilingRow {
  Ceiling without;
  Gain gain;  ///< gain of the job without this cost, relative to the job
};

struct Ablation {
  std::string name, command;          ///< the command line without budget and folder; empty: unknown
  bool part = false;                  ///< only switches that were named; "everything" is all of these
  Gain total;                         ///< everything on, relative to everything off
  std::optional<bool> numbers_agree;  ///< everything on against everything off; null: not comparable
  std::string numbers;                ///< what differs, or why not comparable
  std::vector<SwitchRow> switches;
  std::vector<CeilingRow> ceilings;
  std::vector<PairCell> pairs;
  std::optional<double> pair_sd;          ///< standard deviation of one pair's log ratio; null: unknown
  std::optional<int64_t> pairs_needed;    ///< pairs per cell that decide about min_effect everywhere
  std::optional<double> budget_needed_s;  ///< time for that many pairs
  std::optional<Share> rest;              ///< the total divided by the product of the shares
  double plain_samples_per_s = 0, full_samples_per_s = 0;
  std::optional<double> price_per_hour;  ///< bench.price_per_hour
  double level = 0.95, min_effect = 0.01, seconds = 0;
  std::vector<std::string> warnings;
};

struct AblationRequest {
  Sources sources;                ///< the recipe with everything on
  std::string command;            ///< as in Ablation
  std::vector<std::string> only;  ///< the switches to measure; empty: all that the recipe turns on for speed
  int64_t ranks = 1;              ///< the job's ranks
  std::filesystem::path folder;   ///< folder for the arms, each of which has a process of its own
  CompareOptions options;
  Clock::time_point until;
};

/// Computes intervals and verdicts of all gains together (statistics/cells.h), and the budget that would decide all of
/// them.
void judge_gains(Ablation& ablation);

/// Measures the most informative cells first: the total, each switch alone, each left out, the ceilings, then pairs
/// that seem to interact. Every cell has at least two pairs of processes, and all cells are judged together. A cell
/// that fails becomes a row with its reason. Throws only if the recipe itself cannot be measured.
Ablation ablate(const AblationRequest& request, ArmFactory& factory, const Observer& observer);

// The cells of an ablation: each is a comparison of two sets of switches, or the reason why there is none.

/// Switches that are on; the recipe's other switches have their defaults.
using SwitchSet = std::set<std::string>;

/// The result of a cell: the comparison, or the reason in `gain`.
struct Cell {
  Gain gain;
  std::optional<Comparison> comparison;
};

class AblationBench {
 public:
  static constexpr int64_t kFewestPairs = 2;  ///< a cell has at least so many pairs of processes

  /// `all`: every switch that the recipe turns on and that does something here.
  AblationBench(const AblationRequest& request, SwitchSet all, ArmFactory& factory, const Observer& observer);

  /// The recipe with only these switches on. Throws RecipeErrors for a contradictory set.
  Recipe recipe(const SwitchSet& on) const;
  /// Whether the set can be planned here.
  bool possible(const SwitchSet& on) const;

  /// Measures B's throughput relative to A's over at least two pairs of processes, and as many more as fit into
  /// `seconds`. The gain has the pairs; judge_gains() adds interval and verdict. Not begun if two pairs, which take as
  /// long as those before, would not end in time.
  Cell measure(const SwitchSet& a, const SwitchSet& b, std::optional<Ceiling> b_without, double seconds);
  double seconds_left() const;
  bool has_repeats() const { return request_.options.repeats.has_value(); }
  /// The longest that a pair of processes took so far.
  double pair_s() const { return pair_s_; }

 private:
  std::string name_of(const SwitchSet& on) const;
  ArmSpec spec(const SwitchSet& on, std::optional<Ceiling> without);
  Comparison compare_cell(const ArmSpec& a, const ArmSpec& b, const std::string& name_a, const std::string& name_b,
                          bool a_is_plain, double seconds);
  /// The twins of the plain job of each kind, trained when first needed.
  const Twins& twins_of_plain(const ArmSpec& plain, Yardstick kind);

  const AblationRequest& request_;
  SwitchSet all_;
  ArmFactory& factory_;
  const Observer& observer_;
  Observer quiet_;  ///< observes the comparison within a cell: stops together with observer_, reports nothing
  std::shared_ptr<WarmUp> warm_up_;
  std::map<Yardstick, Twins> twins_;  ///< every cell with the plain job uses their first steps
  double pair_s_ = 0;
  int arms_ = 0;
};

}  // namespace trainopt
