// Creates arms, in this process or in processes of their own.
#pragma once

#include "compare/arm.h"
#include "compare/arm_plan.h"
#include "compare/numerics_yardstick.h"

namespace trainopt {

enum class ArmHost { this_process, own_process };

/// Writes `spec.folder`/recipe.yaml and creates the arm. Throws UserError with the arm's own message if that fails.
std::shared_ptr<Arm> make_arm(const ArmSpec& spec, const Machine& machine, ArmHost host);

/// The spec of the twin that serves as the yardstick, with a folder next to `spec.folder`.
ArmSpec twin_of(const ArmSpec& spec, Yardstick yardstick);

/// Removes the tensors of the first steps of the arm in this folder and of all arms in its subfolders: each file is as
/// large as the model.
void remove_first_steps(const std::filesystem::path& folder);

}  // namespace trainopt
