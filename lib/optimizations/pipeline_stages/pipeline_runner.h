// Runs the micro-batches of a step in a pipeline's order.
#pragma once

#include "comm/config.h"
#include "model/model.h"
#include "train/ranks.h"
#include "train/slot.h"

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace trainopt::pipeline_stages {

// What passes between a stage and its neighbours: activations, and what units leave to later ones beside them, to the
// next stage; the activations' gradients to the one before.

/// What a stage gives the next one of a micro-batch.
struct StageOutput {
  at::Tensor activation;
  std::vector<at::Tensor> beside = {};  ///< tensors of any type
  bool has_gradient = true;             ///< receive_gradient() will be called for the activation
};

/// What a stage is given for a micro-batch. The type of the activation, unless the stage before says otherwise:
/// float32.
struct StageInput {
  std::vector<int64_t> sizes;            ///< the activation has these
  std::vector<PassedValue> beside = {};  ///< only tensors that must be sent
  bool has_gradient = true;
};

class StageLinks {
 public:
  /// `groups` must outlive this object.
  StageLinks(RankGroups& groups, int64_t stage) : groups_(groups), stage_(stage) {}

  // The first message in training and the first one in evaluation say the types of those that follow.
  /// With a gradient, the output is kept until that is received. Of the others, which an evaluation sends, only the
  /// newest is kept.
  void send(const StageOutput& output);
  /// The activation, and the tensors beside it in the order of `input.beside`.
  std::pair<at::Tensor, std::vector<at::Tensor>> receive(const StageInput& input, at::Device device);
  void send_gradient(const at::Tensor& gradient);
  /// The gradient of an activation that was sent, like it. They arrive in the order of the activations.
  at::Tensor receive_gradient(const at::Tensor& activation);

  /// Waits until everything that was sent has been received, and frees it.
  void finish();
  /// Milliseconds that this thread has waited for a neighbour since the last call. On a GPU the stream waits instead.
  double take_waited_ms() { return std::exchange(waited_ms_, 0.0); }

 private:
  struct Sent {
    std::vector<at::Tensor> data;
    std::vector<std::unique_ptr<Exchange>> exchanges;
  };
  void wait(Exchange& exchange);
  void wait(const Sent& sent);

  RankGroups& groups_;
  int64_t stage_;
  std::array<bool, 2> announced_{};                            ///< in evaluation, in training
  std::array<std::vector<at::ScalarType>, 2> received_types_;  ///< likewise
  std::deque<Sent> activations_, gradients_;                   ///< messages on their way, oldest first
  std::optional<Sent> evaluated_;                              ///< the newest activation without a gradient
  double waited_ms_ = 0;
};

/// Makes the model's first held unit take its input from the stage before, and its last one pass its output to the next
/// stage and return a scalar 0, whose backward brings that output's gradient.
void link_stages(Model& model, const StagePlan& plan, const std::shared_ptr<StageLinks>& links);

// What a runner posts into the trace, of the run so far.
inline constexpr const char* kWaitedLabel = "pipeline.waited_ms";    ///< wait for neighbours, after the first step
inline constexpr const char* kStepsLabel = "pipeline.steps_ms";      ///< time of the steps after the first
inline constexpr const char* kInFlightLabel = "pipeline.in_flight";  ///< most micro-batches between their passes
inline constexpr const char* kMicroBatchesLabel = "pipeline.micro_batches";  ///< micro-batches in the last step

/// Forwards of this stage that precede its first backward, beyond the first: with 1f1b as many as there are later
/// stages, with gpipe all.
int64_t warm_up(PipelineSchedule schedule, int64_t stages, int64_t stage);

struct RunnerOptions {
  int64_t warm_up;                    ///< micro-batches between forward and backward until the step's last has arrived
  bool accumulates = false;           ///< a step has several of the loader's batches
  std::shared_ptr<StageLinks> links;  ///< null to order the passes only
};

std::unique_ptr<StepRunner> make_pipeline_runner(RunnerOptions options);

/// Before the update: adds the gradients of tied weights over the stages that hold them, and makes norm and overflow
/// those of the whole model.
void join_stages(const BuildContext& context);

}  // namespace trainopt::pipeline_stages
