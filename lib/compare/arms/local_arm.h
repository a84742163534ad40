// An arm in this process.
#pragma once

#include "compare/arms/arm.h"
#include "metrics/hardware/telemetry.h"
#include "metrics/sinks.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/trainer.h"

#include <cstdint>

namespace trainopt {

struct LocalArmOptions {
  Clock::time_point began = Clock::now();  ///< start of the time to the first step
  bool exclusive_process = false;          ///< nothing else trains in this process
  bool whole = false;                      ///< turns are of whole periods of evaluations, checkpoints and records
  std::shared_ptr<Communicator> communicator = make_single_communicator();           ///< connects the arm's ranks
  std::function<void(const char*, int64_t)> progress = [](const char*, int64_t) {};  ///< stage and completed steps
};

class LocalArm : public Arm, public RunListener {
 public:
  /// `plan` has no last step. With several ranks, every rank creates its arm and takes the same turns; only rank 0
  /// writes to the folder.
  LocalArm(Plan plan, std::filesystem::path folder, LocalArmOptions options = {});
  ~LocalArm() override;

  void limit_turns(const TurnLimit& limit) override { limit_ = limit; }
  Turn turn(int64_t steps) override;
  ArmFacts facts() override;
  int64_t steps_taken() const override { return trainer_->outcome().steps; }
  const std::filesystem::path& folder() const override { return folder_; }
  const Trainer& trainer() const { return *trainer_; }

  // RunListener, for its own trainer
  void step_done(const StepRecord& row) override;
  void evaluated(int64_t, const EvaluationResult&) override {}
  void at(const char* stage, int64_t steps) override { options_.progress(stage, steps); }

 private:
  /// A complete copy on rank 0; nothing on other ranks, which must call it too.
  NamedTensors copy_of_state();
  NamedTensors update_since(NamedTensors before);

  std::filesystem::path folder_;
  LocalArmOptions options_;
  TurnLimit limit_;
  double before_training_s_;
  std::unique_ptr<Telemetry> telemetry_;  ///< null if the plan logs nothing, and on other ranks than 0
  std::unique_ptr<Sinks> sinks_;
  std::unique_ptr<CheckpointWriter> checkpoints_;  ///< null if the plan saves none
  std::unique_ptr<Trainer> trainer_;
  int64_t compared_steps_ = 0;  ///< the first steps whose gradients or updates are in files
  bool takes_first_steps_ = true;
  NamedTensors before_;  ///< what the first steps update, as it was; empty afterwards
  Turn turn_;            ///< the current turn
  double clock_sum_ = 0;
  int64_t clock_count_ = 0;
  double last_loss_scale_ = 0;
};

/// The first steps whose gradients are in files. The weights stay as they are until the last of them. Several show a
/// fault in a noisy tensor: in ResNet-18 with 4 images a step, bfloat16 alone stretches the gradient of one step by
/// several per cent. Not the second: what it sends is recorded as the switches' receipts, and writing gradients would
/// add to it. A large model has one, because the files of several would fill the disk.
std::vector<int64_t> gradient_steps(const Plan& plan);

/// How many steps the update in update_file() covers; the first is the last of gradient_steps(). Fewer hide Adam's
/// momentum. With more, the trainings of a deep network diverge: ResNet-18's update in bfloat16 had a cosine of 0.56
/// with float32's after 6 steps and of 0.41 after 10.
inline constexpr int64_t kUpdateSteps = 6;

/// The file of these steps' update in an arm's folder: the change of parameters and buffers. Parameters have their
/// names, buffers "buffers.<name>". kAlongWeights has a number for each parameter: how far it moved along its initial
/// value, a direction in which weight decay moves it and gradients hardly do.
std::filesystem::path update_file(const std::filesystem::path& arm_folder);
/// The file of the gradients of one of gradient_steps(), under "gradients.<name>".
std::filesystem::path gradients_file(const std::filesystem::path& arm_folder, int64_t step = 1);
inline constexpr std::string_view kBufferPrefix = "buffers.", kGradientPrefix = "gradients.",
                                  kAlongWeights = "along the first values";

// Perturbs a training as rounding to bfloat16 does: makes each weight slightly larger or smaller.

/// The relative perturbation: half of the largest relative change that rounding to bfloat16 makes. It would be rounded
/// away in parameters that are bfloat16 already: theirs is the least that changes every value.
inline constexpr double kPerturbation = 0x1p-9, kPerturbationOfBfloat16 = 0x1p-7;

/// Multiplies every element of every parameter by 1 + the perturbation or 1 − it. The signs are a function of
/// (seed, parameter name, index), so they are the same on every device and in every memory format. Buffers are
/// unchanged.
void perturb_weights(Model& model, uint64_t seed);

/// Makes the plan train from such weights, and perturbs the gradients of the compared steps as much, relative
/// to each tensor's root mean square; the seed of everything else is unchanged. `number`: of the twin.
void begin_perturbed(Plan& plan, uint64_t number = 0);

}  // namespace trainopt
