#include "device/device.h"
#include "device/gpu_error.h"
#include "device/memory_label.h"
#include "train/trainer.h"

// Building a trainer's parts, and loading the state to resume from.
namespace trainopt {

/// Everything that uses the device is in build(). If that throws, this constructor is complete, so ~Trainer() runs.
Trainer::Trainer(Plan plan, std::filesystem::path run_dir, RunListener& listener, const std::atomic<int>& stop_signal,
                 Persistence persistence, std::shared_ptr<Communicator> communicator, MemoryRecorder* memory)
    : Trainer(std::move(plan), listener, stop_signal, persistence.checkpoints, std::move(communicator), memory) {
  open_device(plan_.device);
  or_gpu_lost([&] { build(run_dir, persistence); });
}

Trainer::Trainer(Plan plan, RunListener& listener, const std::atomic<int>& stop_signal, CheckpointWriter* checkpoints,
                 std::shared_ptr<Communicator> communicator, MemoryRecorder* memory)
    : plan_(std::move(plan)),
      listener_(listener),
      stop_signal_(stop_signal),
      checkpoints_(checkpoints),
      communicator_(std::move(communicator)),
      ranks_(*communicator_),
      phases_(plan_.device, plan_.replays_steps),
      memory_(memory, plan_.memory_snapshot),
      schedule_(plan_.schedule()) {}

void Trainer::build(const std::filesystem::path& run_dir, const Persistence& persistence) {
  at("building the model");
  async_reader_.emplace(plan_.device, /*fixed_delay=*/communicator_->ranks() > 1);
  {
    const MemoryScope scope({.use = MemoryUse::parameters});
    model_ = plan_.build_model(/*is_resumed=*/persistence.resume != nullptr);
  }
  training_ = {.training = true,
               .generator = make_generator(plan_.device, plan_.seed + static_cast<uint64_t>(communicator_->rank()))};
  guard_ = std::make_unique<StepGuard>(*model_, plan_.device, *training_.generator, plan_.undoes_steps());
  groups_ = std::make_unique<RankGroups>(*communicator_, plan_.stages);
  for (Communicator* group : groups_->of_pipeline()) ranks_.also_count(*group);
  replica_check_.emplace(groups_->replicas(), plan_.parallel.check_replicas_every);
  BuildContext context{plan_,
                       plan_.device,
                       run_dir,
                       communicator_.get(),
                       model_.get(),
                       nullptr,
                       &outcome_.steps,
                       training_.generator,
                       &groups_->replicas(),
                       groups_.get()};
  model_->set_operations(plan_.build_operations(context));
  {
    const MemoryScope scope({.use = MemoryUse::gradients});
    parameters_ = plan_.parameters.build(context);
  }
  for (Communicator* of_store : parameters_->communicators()) ranks_.also_count(*of_store);
  context.parameters = parameters_.get();
  task_ = plan_.task.build(context);
  precision_ = plan_.precision.build(context);
  {
    const MemoryScope scope({.use = MemoryUse::optimizer});
    optimizer_ = plan_.optimizer.build(context);
  }
  parameters_->set_form(optimizer_->make_gradients());
  runner_ = plan_.runner.build(context);
  average_ = plan_.average.build(context);
  profiler_ = plan_.profiler.build(context);
  memory_.attach(*model_, (run_dir / "memory" / fmt::format("rank{}", communicator_->rank())).string());
  body_ = {.micro_step = [this](const Batch& micro) { return micro_step(micro); },
           .forward = [this](const Batch& micro) { return forward(micro); },
           .backward = [this](const at::Tensor& loss, bool is_last) { backward(loss, is_last); },
           .update_step = [this] { return update_step(); }};
  if (persistence.resume) {
    at("loading the checkpoint");
    load(*persistence.resume);
    if (!persistence.forks) saved_at_ = outcome_.steps;
  }
  at("opening the data");
  open_batches();
  started_ = boundary_ = Clock::now();
}

}  // namespace trainopt
