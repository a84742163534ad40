// A fresh measurement of one recipe held against an arm of a stored result. The two did not take turns, so this shows
// less than a comparison does.
#pragma once

#include "compare/gate.h"
#include "compare/output/table.h"
#include "compare/sampling/process_sets.h"
#include "compare/stored_arm.h"

namespace trainopt {

struct Against {
  StoredArm stored;                     ///< A
  Sampling sampling;                    ///< B: a set is a process
  Json recipe;                          ///< B's recipe
  std::vector<Difference> differences;  ///< differences in environment, plan and recipe

  // Computed by judge_against()
  ArmResult arm;           ///< B
  PairResult pair;         ///< ratio of geometric means over processes, its interval by Welch's t over processes
  std::string no_verdict;  ///< why nothing can be decided, whatever the interval; empty: it can
  std::optional<double> half_width;         ///< half the interval's width, as a share of the ratio
  std::optional<double> paired_half_width;  ///< half-width of as many pairs like the stored ones; null: not known
  std::vector<std::string> warnings;

  int64_t processes() const { return sampling.rounds.empty() ? 0 : sampling.rounds.back().set + 1; }
};

/// Throws UserError if the stored arm ran on another number of ranks: the throughput of two ranks against that of one
/// is not the cost of a change.
void require_same_ranks(const StoredArm& stored, int64_t ranks);

/// Measures `spec` in fresh processes, as many as the stored arm has and at least three, or options.repeats.
/// `environment`: of this machine now, as in environment.json. nullopt: the observer stopped it before the first round.
/// Throws what the first process throws, and BudgetTooShort.
std::optional<Against> measure_against(StoredArm stored, const std::string& name, const ArmSpec& spec,
                                       const Json& environment, const CompareOptions& options, Clock::time_point until,
                                       ArmFactory& factory, const Observer& observer);

/// Computes ratio, interval, verdict and warnings from the processes of both sides.
void judge_against(Against& against);

/// B as the stored arm of a later --against.
StoredArm measured_arm(const Against& against);

GateEvidence evidence_of(const Against& against, const GateRule& rule);

/// Whether result.json is one of --against.
bool is_against(const Json& result);
/// `with_samples`: every turn, as in result.json.
Json to_json(const Against& against, bool with_samples);
/// Judges it again. Throws UserError(data) if it is not such a result, or if its turns do not give its verdict.
Against against_from(const Json& json);

std::string against_text(const Against& against, const TextStyle& style);
std::string against_markdown(const Against& against);
/// One line per turn, with a header.
std::string against_csv(const Against& against);

}  // namespace trainopt
