#include "train/memory_forecast.h"

#include "comm/communicator.h"
#include "data/batch_source.h"
#include "device/device.h"
#include "device/meta_device.h"
#include "device/tensor.h"
#include "train/micro_batches.h"
#include "train/observe/observed_step.h"
#include "train/plan.h"
#include "train/ranks.h"
#include "train/step_guard.h"

#include <algorithm>

namespace trainopt {
namespace {

/// The plan on the meta device, with nothing to read or write.
Plan on_meta(Plan plan) {
  plan.device = at::kMeta;
  plan.model.config.weights.reset();
  // One micro-batch after another is alike; three show what accumulates.
  plan.data.accumulation = std::min<int64_t>(plan.data.accumulation, 3);
  return plan;
}

/// The trainer's parts and its step (trainer.cpp), without clocks, records and data.
class RehearsedStep {
 public:
  explicit RehearsedStep(const Plan& plan)
      : plan_(on_meta(plan)),
        communicator_(make_shaped_communicator(plan.position, plan.device)),
        groups_(*communicator_, plan.stages),
        recorder_(plan_.device),
        memory_(&recorder_, /*whole_run=*/false) {
    build();
    const MemoryScope scope({.use = MemoryUse::batches});
    batches_.emplace(plan_.data, plan_.loader, plan_.tensor_format, plan.device);
    if (plan_.replays_steps) {
      const Batch any = ShapedBatches(*batches_).next();
      static_batch_ = {at::empty_like(any.input), at::empty_like(any.target)};
    }
  }

  MemoryPeak run(int64_t step) {
    memory_.begin_step(step);
    guard_->begin(step, 0);
    for (bool last = false; !last;) {
      const Batch batch = next_batch();
      for (const Batch& micro : split_batch(batch, plan_.stages.micro_batches)) runner_->micro_step(body_, micro);
      last = batch.is_last;
    }
    memory_.file_gradients(*parameters_);
    const MemoryScope scope({.use = MemoryUse::other, .phase = "update"});
    runner_->update_step(body_);
    return recorder_.peak();
  }

 private:
  void build() {
    {
      const MemoryScope scope({.use = MemoryUse::parameters});
      model_ = plan_.build_model();
    }
    const at::Generator generator = make_generator(at::kCPU, 0);
    training_ = {.training = true, .generator = generator};
    guard_.emplace(*model_, plan_.device, generator, plan_.undoes_steps());
    BuildContext context{plan_,   plan_.device, {},        communicator_.get(), model_.get(),
                         nullptr, &steps_,      generator, &groups_.replicas(), &groups_};
    model_->set_operations(plan_.build_operations(context));
    {
      const MemoryScope scope({.use = MemoryUse::gradients});
      parameters_ = plan_.parameters.build(context);
    }
    context.parameters = parameters_.get();
    task_ = plan_.task.build(context);
    precision_ = plan_.precision.build(context);
    {
      const MemoryScope scope({.use = MemoryUse::optimizer});
      optimizer_ = plan_.optimizer.build(context);
    }
    parameters_->set_form(optimizer_->make_gradients());
    // Only the stages of a pipeline order the passes otherwise; a recorded step runs as an eager one does.
    runner_ = plan_.stages.stages() > 1 ? plan_.runner.build(context) : std::make_unique<EagerRunner>();
    average_ = plan_.average.build(context);
    memory_.attach(*model_, "");
  }

  Batch next_batch() {
    const MemoryScope scope({.use = MemoryUse::batches, .phase = "loading"});
    return batches_->next();
  }

  at::Tensor micro_step(const Batch& micro) {
    const at::Tensor loss = forward(micro);
    backward(loss, micro.is_last);
    return loss.detach();
  }

  at::Tensor forward(const Batch& micro) {
    const MemoryScope scope({.use = MemoryUse::activations, .phase = "forward"});
    const auto autocast = precision_->autocast();
    return task_->loss(*model_, micro.input, micro.target, training_).loss * micro.weight;
  }

  void backward(const at::Tensor& loss, bool is_last) {
    const auto accumulating = parameters_->accumulate(is_last);
    {
      const MemoryScope scope({.use = MemoryUse::other, .phase = "backward"});
      precision_->backward(loss);
    }
    guard_->watch(loss);
  }

  at::Tensor update_step() {
    Gradients& gradients = parameters_->finish_gradients();
    const at::Tensor overflow = precision_->unscale(gradients);
    const at::Tensor skip_update = guard_->decide(overflow, gradients);
    at::Tensor norm = clip(gradients, plan_.train.max_grad_norm, plan_.train.clip_value);
    optimizer_->step(gradients, skip_update);
    precision_->update(overflow, guard_->flag());
    average_->update(*parameters_, skip_update);
    parameters_->updated();
    guard_->restore_bad_buffers();
    gradients.clear();
    return norm;
  }

  Plan plan_;
  std::unique_ptr<Communicator> communicator_;
  RankGroups groups_;
  MemoryRecorder recorder_;
  StepMemory memory_;
  const int64_t steps_ = -2;  ///< no step of the run: nothing is dumped
  std::unique_ptr<Model> model_;
  ForwardContext training_;
  std::optional<StepGuard> guard_;
  std::unique_ptr<ParameterStore> parameters_;
  std::unique_ptr<Task> task_;
  std::unique_ptr<Precision> precision_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<WeightAverage> average_;
  const StepBody body_{.micro_step = [this](const Batch& micro) { return micro_step(micro); },
                       .forward = [this](const Batch& micro) { return forward(micro); },
                       .backward = [this](const at::Tensor& loss, bool is_last) { backward(loss, is_last); },
                       .update_step = [this] { return update_step(); }};
  std::optional<ShapedBatches> batches_;
  std::vector<at::Tensor> static_batch_;  ///< a recorded step's own copy of its batch
};

/// libtorch gives cuBLAS a work space on the thread that runs forward and on the one that runs backward, from its own
/// allocator: 32 MiB on Hopper and newer, or if it must be reproducible; otherwise 8.125 MiB
/// (aten/src/ATen/cuda/CublasHandlePool.cpp, PyTorch 2.11).
int64_t cublas_bytes(const Plan& plan) {
  if (!plan.device.is_cuda()) return 0;
  const int64_t kib = plan.machine.sm >= 90 || plan.process.deterministic ? 32 * 1024 : 2 * 4096 + 8 * 16;
  return 2 * kib * 1024;
}

}  // namespace

MemoryPeak forecast_memory(const Plan& plan) {
  open_meta_device();
  const BackendGuard settings(plan.backend);
  RehearsedStep step(plan);
  // The first step creates what later ones find: gradients that are kept, gathered parameters.
  const MemoryPeak first = step.run(1), second = step.run(2);
  MemoryPeak peak = first.breakdown.total() > second.breakdown.total() ? first : second;
  peak.breakdown[MemoryUse::other] += cublas_bytes(plan);
  return peak;
}

int64_t memory_capacity(const Plan& plan) {
  return plan.device.is_cuda() ? plan.machine.gpu_memory_bytes : plan.machine.memory_bytes / plan.position.local_ranks;
}

}  // namespace trainopt
