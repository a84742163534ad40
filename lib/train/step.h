// One training step: the parts that a plan's slots hold, and the two halves of a step that they make up. The trainer,
// its warm-up and the memory forecast run it; an evaluation uses its parts.
#pragma once

#include "comm/communicator.h"
#include "data/batch.h"
#include "model/model.h"
#include "model/task.h"
#include "train/checkpoint/archive.h"
#include "train/observe/observed_step.h"
#include "train/optimizer/optimizer.h"
#include "train/optimizer/weight_average.h"
#include "train/parameter_store.h"
#include "train/plan.h"
#include "train/precision.h"
#include "train/ranks.h"
#include "train/slot.h"
#include "train/step_guard.h"

#include <filesystem>
#include <memory>
#include <optional>

namespace trainopt {

class Step {
 public:
  /// The arguments must outlive the step. `steps_done`: the run's steps so far. Uses no device before build().
  Step(const Plan& plan, Communicator& communicator, const int64_t& steps_done);
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  /// Builds the parts. `run_dir`: where they may write; empty for none. `is_resumed`: load() follows. What has been
  /// built stays if this throws.
  void build(const std::filesystem::path& run_dir = {}, bool is_resumed = false);

  /// Runs forward and backward of one micro-batch, eagerly or as the plan's runner does. Returns its share of the
  /// step's loss (0-dim, detached).
  at::Tensor run_micro_batch(const Batch& micro) { return runner_->micro_step(body_, micro); }
  /// Runs the update, after the step's last micro-batch. Returns the gradient norm before clipping (0-dim); undefined
  /// without clipping.
  at::Tensor update();
  /// Forward and backward of one micro-batch, eagerly. Like update_step(), it decides nothing from values on the
  /// device, so it can be recorded once and replayed.
  at::Tensor micro_step(const Batch& micro);

  /// With batch-norm at least 2 samples: it would divide 0 by 0 if there were one value of a channel.
  int64_t min_micro_batch_size() const { return model_->buffers().empty() ? 1 : 2; }
  /// The gradients' bytes at the last update, before they were cleared.
  int64_t gradient_bytes() const { return gradient_bytes_; }

  /// Saves the state of every part under the model's names. Each rank saves what its stage stores.
  void save(ArchiveWriter& archive) const;
  /// Restores what save() saved. `expected`: what the run would save now, as shapes. Throws UserError(checkpoint) if
  /// the archive has other tensors.
  void load(const ArchiveReader& archive, const ArchiveWriter& expected);
  /// The model's complete parameters and buffers on rank 0, nothing on other ranks. Every rank must call it.
  NamedTensors weights() const;
  /// Runs `work` while the model has the averaged weights; false, and nothing done, if there is no average. Every rank
  /// must call it.
  bool with_average(const std::function<void()>& work);

  // The parts, once they are built
  Model& model() const { return *model_; }
  Task& task() const { return *task_; }
  Precision& precision() const { return *precision_; }
  ParameterStore& parameters() const { return *parameters_; }
  Optimizer& optimizer() const { return *optimizer_; }
  StepRunner& runner() const { return *runner_; }
  StepGuard& guard() const { return *guard_; }
  RankGroups& groups() const { return *groups_; }
  StepPhases& phases() { return phases_; }
  /// Inputs for building further parts (the profiler).
  const BuildContext& context() const { return *context_; }

 private:
  at::Tensor forward(const Batch& micro);
  void backward(const at::Tensor& loss, bool is_last);
  at::Tensor update_step();

  bool stores(const std::string& name) const;
  NamedTensors of_all_stages(const NamedTensors& own) const;

  const Plan& plan_;
  Communicator& communicator_;
  const int64_t& steps_done_;
  std::unique_ptr<RankGroups> groups_;
  std::unique_ptr<Model> model_;
  ForwardContext training_;  ///< includes the generator for the model's random numbers (dropout)
  std::unique_ptr<StepGuard> guard_;
  std::optional<BuildContext> context_;
  std::unique_ptr<ParameterStore> parameters_;
  std::unique_ptr<Task> task_;
  std::unique_ptr<Precision> precision_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<WeightAverage> average_;
  StepPhases phases_;
  const StepBody body_;
  int64_t gradient_bytes_ = 0;
};

}  // namespace trainopt
