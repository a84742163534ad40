// From what an arm should be to the plan it trains by.
#pragma once

#include "config/describe.h"
#include "recipe/recipe.h"
#include "train/plan.h"

#include <filesystem>
#include <optional>

namespace trainopt {

/// A cost taken out of a job, to see what it would gain if that cost were nothing at all.
enum class Ceiling { data, optimizer, logging };
template <>
struct Choices<Ceiling> {
  static constexpr std::array all = {Choice<Ceiling>{"data", Ceiling::data},
                                     Choice<Ceiling>{"optimizer", Ceiling::optimizer},
                                     Choice<Ceiling>{"logging", Ceiling::logging}};
};
/// "the first step's batches stay on the device and are used again and again" and the like.
std::string_view meaning(Ceiling ceiling);

struct ArmSpec {
  Recipe recipe;
  std::filesystem::path folder;       ///< for its recipe.yaml, its records and the tensors of its first steps
  std::optional<Ceiling> without;     ///< the cost that is taken out
  std::optional<int64_t> batch_seed;  ///< other batches from the same initial weights
  bool perturbed = false;             ///< the same batches from weights that are a little off (perturbed_weights.h)
};

/// The recipe's plan without an end, without evaluation and without checkpoints. Throws UserError as make_plan() does.
Plan arm_plan(const ArmSpec& spec, const Machine& machine);

}  // namespace trainopt
