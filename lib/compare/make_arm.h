// Creates arms, in this process or in processes of their own.
#pragma once

#include "compare/arm.h"
#include "compare/arm_plan.h"
#include "compare/numerics_yardstick.h"

namespace trainopt {

enum class ArmHost { this_process, own_process };

/// Creates the arms of a measurement.
class ArmFactory {
 public:
  virtual ~ArmFactory() = default;
  /// Writes `spec.folder`/recipe.yaml and creates the arm. Throws UserError with the arm's own message if that fails.
  virtual std::shared_ptr<Arm> make(const ArmSpec& spec, ArmHost host) = 0;
  /// The plan of such an arm on this rank. Throws UserError as make_plan() does.
  virtual Plan plan(const ArmSpec& spec) const = 0;
};

/// Arms of a job with one rank.
class LocalArms : public ArmFactory {
 public:
  explicit LocalArms(Machine machine) : machine_(std::move(machine)) {}
  std::shared_ptr<Arm> make(const ArmSpec& spec, ArmHost host) override;
  Plan plan(const ArmSpec& spec) const override { return arm_plan(spec, machine_); }

 private:
  Machine machine_;
};

/// The spec of the twin that serves as the yardstick, with a folder next to `spec.folder`.
ArmSpec twin_of(const ArmSpec& spec, Yardstick yardstick);

/// Removes the tensors of the first steps of the arm in this folder and of all arms in its subfolders: each file is as
/// large as the model.
void remove_first_steps(const std::filesystem::path& folder);

}  // namespace trainopt
