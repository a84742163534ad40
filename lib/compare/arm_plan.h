// The plan of an arm, from its specification.
#pragma once

#include "config/describe.h"
#include "recipe/recipe.h"
#include "train/plan.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

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
/// Throws UserError for an unknown word.
Ceiling ceiling_of(std::string_view word);

/// How an arm's processes on several ranks meet: a job of their own at the store that the comparison's ranks use.
struct ArmRendezvous {
  std::string host;
  int port = 0;
  std::string job;
  std::function<bool()> has_failed = {};  ///< whether one of them has said that the job failed; not part of the JSON
};

struct ArmSpec {
  Recipe recipe;
  std::filesystem::path folder;          ///< for its recipe.yaml, its records and the tensors of its first steps
  std::optional<Ceiling> without;        ///< the cost that is removed
  std::optional<int64_t> batch_seed;     ///< other batches from the same initial weights
  bool perturbed = false;                ///< the same batches from slightly perturbed weights (perturbed_weights.h)
  bool whole = false;                    ///< keeps the recipe's periodic evaluations and, with one rank, checkpoints
  std::vector<std::string> faults = {};  ///< to inject (train/inject.h)
  std::optional<ArmRendezvous> rendezvous = {};  ///< of an arm with processes of its own on several ranks
};

/// All but recipe and folder, for another process or rank.
Json to_json(const ArmSpec& spec);
/// Throws Json::exception.
ArmSpec arm_spec_from(const Json& json);

/// The recipe's plan for one rank, without a last step and, unless it is whole, without evaluation and checkpoints.
/// Without the cost of communication
/// the plan is the same; the arm's communicator then comes from make_free_communicator(). Throws UserError as
/// make_plan() does.
Plan arm_plan(const ArmSpec& spec, const Machine& machine, const RankPosition& position = {});

}  // namespace trainopt
