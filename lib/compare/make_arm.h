// Where arms live.
#pragma once

#include "compare/arm.h"
#include "compare/arm_plan.h"
#include "compare/numerics_yardstick.h"

namespace trainopt {

enum class ArmHost { this_process, own_process };

/// Writes `spec.folder`/recipe.yaml and makes the arm. Throws UserError for what it cannot do, with the arm's own
/// sentence.
std::shared_ptr<Arm> make_arm(const ArmSpec& spec, const Machine& machine, ArmHost host);

/// The twin that is the yardstick, in the folder beside `spec.folder`.
ArmSpec twin_of(const ArmSpec& spec, Yardstick yardstick);

/// Removes the tensors of an arm's first steps, or of all arms' whose folders are in this one: each is as large as the
/// model.
void remove_first_steps(const std::filesystem::path& folder);

}  // namespace trainopt
