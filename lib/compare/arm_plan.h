// The plan of an arm, from its specification.
#pragma once

#include "config/describe.h"
#include "recipe/recipe.h"
#include "train/plan.h"

#include <filesystem>
#include <optional>

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

struct ArmSpec {
  Recipe recipe;
  std::filesystem::path folder;       ///< for its recipe.yaml, its records and the tensors of its first steps
  std::optional<Ceiling> without;     ///< the cost that is removed
  std::optional<int64_t> batch_seed;  ///< other batches from the same initial weights
  bool perturbed = false;             ///< the same batches from slightly perturbed weights (perturbed_weights.h)
};

/// The recipe's plan without a last step, evaluation or checkpoints. Without the cost of communication the plan is the
/// same; the arm's communicator then comes from make_free_communicator(). Throws UserError as make_plan() does.
Plan arm_plan(const ArmSpec& spec, const Machine& machine);

}  // namespace trainopt
