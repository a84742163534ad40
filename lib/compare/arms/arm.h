// One side of a comparison: a training job that takes turns, in this process or in one of its own.
#pragma once

#include "base/clock.h"
#include "base/json.h"
#include "compare/sampling/round.h"
#include "config/describe.h"
#include "recipe/recipe.h"
#include "train/plan.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// What one rank contributes to a step.
struct RankShare {
  std::optional<double> peak_memory_mib;  ///< peak of the rank's process; null if other arms share it
  double state_mib = 0;                   ///< parameters, gradients and optimizer state that the rank holds
  double sent_mib = 0;                    ///< sent in a step's collectives, computed with wire_bytes()
};
/// The largest of each number over the ranks.
RankShare largest(const std::vector<RankShare>& ranks);

/// What is known of an arm once it has taken steps.
struct ArmFacts {
  int64_t step_samples = 0;               ///< samples in a full step, over all micro-batches
  int64_t period = 1;                     ///< steps after which its evaluations and checkpoints repeat
  double time_to_first_step_s = 0;        ///< time since its creation; in a process of its own, since the command began
  std::optional<double> peak_memory_mib;  ///< peak of its process, the largest over the ranks; null if it shares one
  Json plan;                              ///< as in plan.json
  Json receipts;                          ///< as in summary.json
  std::optional<double> price_per_hour;   ///< the recipe's bench.price_per_hour
  std::vector<RankShare> ranks;           ///< shares in rank order; empty before the second step, and in older results
};
Json to_json(const ArmFacts& facts);
ArmFacts facts_from(const Json& json);

/// When a turn ends early, after the step in progress.
struct TurnLimit {
  Clock::time_point until = Clock::time_point::max();
  std::function<bool()> stopped = {};  ///< whether to end now; may be empty

  bool is_stopped() const { return stopped && stopped(); }
  bool is_reached() const { return Clock::now() > until || is_stopped(); }
};

class Arm {
 public:
  virtual ~Arm() = default;
  /// Limits all turns from now on; one that ends early has fewer steps. Arms on several ranks, which would have to
  /// agree, take their turns to the end.
  virtual void limit_turns(const TurnLimit&) {}
  /// Takes the next steps of the training, and waits for them. Those before the first facts() also write the
  /// gradients and the update of the first few steps to folder(). Throws what the training throws;
  /// UserError(peer) if its process has ended.
  virtual Turn turn(int64_t steps) = 0;
  virtual ArmFacts facts() = 0;
  virtual int64_t steps_taken() const = 0;
  virtual const std::filesystem::path& folder() const = 0;
};

// The plan of an arm, from its specification.

/// A cost removed from a job, to measure what the job would gain if that cost were zero.
enum class Ceiling { data, optimizer, logging, communication };
template <>
struct Choices<Ceiling> {
  static constexpr std::array all = {
      Choice<Ceiling>{"data", Ceiling::data}, Choice<Ceiling>{"optimizer", Ceiling::optimizer},
      Choice<Ceiling>{"logging", Ceiling::logging}, Choice<Ceiling>{"communication", Ceiling::communication}};
};
/// For example "the first step's batches stay on the device and are reused in every step".
std::string_view meaning(Ceiling ceiling);

/// How an arm's processes on several ranks meet: a job of their own at the store that the comparison's ranks use.
struct ArmRendezvous {
  std::string host;
  int port = 0;
  std::string job;
  std::function<bool()> has_failed = {};  ///< whether one of them has said that the job failed; not part of the JSON
};

struct ArmSpec {
  Recipe recipe;
  std::filesystem::path folder;          ///< holds its recipe.yaml, its records and the tensors of its first steps
  std::optional<Ceiling> without;        ///< the cost that is removed
  std::optional<int64_t> batch_seed;     ///< other batches from the same initial weights
  std::optional<int64_t> perturbed;      ///< same batches, slightly perturbed weights and gradients: the twin's number
  bool whole = false;                    ///< keeps the recipe's periodic evaluations and, with one rank, checkpoints
  std::vector<std::string> faults = {};  ///< faults to inject (debugging/inject.h)
  std::optional<ArmRendezvous> rendezvous = {};  ///< set for an arm with processes of its own on several ranks
};

/// All but recipe and folder, for another process or rank.
Json to_json(const ArmSpec& spec);
/// Throws Json::exception.
ArmSpec arm_spec_from(const Json& json);

/// The recipe's plan for one rank, without a last step and, unless it is whole, without evaluation and checkpoints.
/// Without the cost of communication the plan is the same; the arm's communicator then comes from
/// make_free_communicator(). Throws UserError as make_plan() does.
Plan arm_plan(const ArmSpec& spec, const Machine& machine, const RankPosition& position = {});

}  // namespace trainopt
