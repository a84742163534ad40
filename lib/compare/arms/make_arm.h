// Creates arms, in this process or in processes of their own.
#pragma once

#include "compare/arms/arm.h"
#include "compare/numbers/numerics.h"

#include <functional>
#include <memory>
#include <span>

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
  /// Whether more arms can be made: false once a rank is lost.
  virtual bool is_sound() const { return true; }
};

/// Where one rank's part of every arm runs. The functions are called if they are set.
struct ArmSite {
  Machine machine;
  RankPosition position = {};
  std::function<void(Plan&)> complete_plan = {};                          ///< adds what depends on the rank's process
  std::function<void(const Plan&)> prepare = {};                          ///< called before an arm is created here
  std::function<std::shared_ptr<Communicator>(at::Device)> connect = {};  ///< to the arm's other ranks
  std::function<void(const char* stage, int64_t steps)> progress = {};    ///< progress of arms in this process
  std::optional<Clock::time_point> began = {};  ///< start of a process with a single arm: it has all memory to itself
};

/// Creates this rank's part of an arm.
class LocalArms : public ArmFactory {
 public:
  explicit LocalArms(ArmSite site) : site_(std::move(site)) {}
  std::shared_ptr<Arm> make(const ArmSpec& spec, ArmHost host) override;
  Plan plan(const ArmSpec& spec) const override;

 private:
  /// Every arm measures data.num_workers: auto for itself, where it runs.
  ArmSpec with_workers(ArmSpec spec) const;

  ArmSite site_;
};

/// Where arms with these plans run: in this process unless their process settings or, on a GPU, their backend settings
/// exclude each other.
ArmHost host_of(std::span<const Plan> plans);

/// The spec of a twin that serves as the yardstick, by its number from 0, with a folder next to `spec.folder`.
ArmSpec twin_of(const ArmSpec& spec, Yardstick yardstick, int64_t number);

/// Removes the tensors of the first steps of the arm in this folder and of all arms in its subfolders: each file is as
/// large as the model.
void remove_first_steps(const std::filesystem::path& folder);

}  // namespace trainopt
