#include "train/step.h"

#include "base/log.h"
#include "device/device.h"
#include "device/tensor.h"
#include "device/tensor_memory.h"

#include <map>

namespace trainopt {

Step::Step(const Plan& plan, Communicator& communicator, const int64_t& steps_done)
    : plan_(plan),
      communicator_(communicator),
      steps_done_(steps_done),
      phases_(plan.device, plan.replays_steps),
      body_{.micro_step = [this](const Batch& micro) { return micro_step(micro); },
            .forward = [this](const Batch& micro) { return forward(micro); },
            .backward = [this](const at::Tensor& loss, bool is_last) { backward(loss, is_last); },
            .update_step = [this] { return update_step(); }} {}

void Step::build(const std::filesystem::path& run_dir, bool is_resumed) {
  {
    const MemoryScope scope({.use = MemoryUse::parameters});
    model_ = plan_.build_model(is_resumed);
  }
  const at::Device generates = plan_.device.is_meta() ? at::Device(at::kCPU) : plan_.device;
  training_ = {.training = true,
               .generator = make_generator(generates, plan_.seed + static_cast<uint64_t>(communicator_.rank()))};
  guard_ = std::make_unique<StepGuard>(*model_, plan_.device, *training_.generator, plan_.undoes_steps());
  groups_ = std::make_unique<RankGroups>(communicator_, plan_.stages);
  BuildContext& context = context_.emplace(BuildContext{.plan = plan_,
                                                        .device = plan_.device,
                                                        .run_dir = run_dir,
                                                        .communicator = &communicator_,
                                                        .model = model_.get(),
                                                        .steps_done = &steps_done_,
                                                        .generator = training_.generator,
                                                        .replicas = &groups_->replicas(),
                                                        .groups = groups_.get()});
  model_->set_operations(plan_.operations.build(context));
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
  runner_ = plan_.runner.build(context);
  average_ = plan_.average.build(context);
}

at::Tensor Step::micro_step(const Batch& micro) {
  const at::Tensor loss = forward(micro);
  backward(loss, micro.is_last);
  return loss.detach();
}

at::Tensor Step::forward(const Batch& micro) {
  at::Tensor loss;
  phases_.run(Metric::forward_ms, [&] {
    const auto autocast = precision_->autocast();
    loss = task_->loss(*model_, micro.input, micro.target, training_).loss *
           micro.weight;  // makes the sum over micro-batches the step's mean
  });
  return loss;
}

void Step::backward(const at::Tensor& loss, bool is_last) {
  const auto scope = parameters_->accumulate(is_last);  // only the last micro-batch communicates
  phases_.run(Metric::backward_ms, [&] { precision_->backward(loss); });
  guard_->watch(loss);
}

at::Tensor Step::update() {
  at::Tensor norm;
  phases_.run(Metric::update_ms, [&] { norm = runner_->update_step(body_); });
  return norm;
}

at::Tensor Step::update_step() {
  Gradients& gradients = parameters_->finish_gradients();
  const at::Tensor overflow = precision_->unscale(gradients);          // stays on the device
  const at::Tensor skip_update = guard_->decide(overflow, gradients);  // 1: nothing below may write
  const at::Tensor norm = clip(gradients, plan_.train.max_grad_norm, plan_.train.clip_value);
  optimizer_->step(gradients, skip_update);
  precision_->update(overflow, guard_->flag());
  average_->update(*parameters_, skip_update);
  parameters_->updated();
  guard_->restore_bad_buffers();
  gradient_bytes_ = parameters_->gradient_bytes();
  gradients.clear();
  return norm;
}

bool Step::with_average(const std::function<void()>& work) {
  if (!average_->begin_use()) return false;
  const auto tell = [this] {
    parameters_->updated();
    optimizer_->parameters_changed();
  };
  tell();
  work();
  average_->end_use();
  tell();
  return true;
}

namespace {

/// Archive name of a rank's generator state for the model's random numbers.
std::string random_name(int64_t rank) { return rank == 0 ? "random.model" : fmt::format("random.model.{}", rank); }

/// Whether this precision has state to load. What this rank stores of a checkpoint does not say so: of a pipeline's
/// stages, all have the loss scale, and only the first one stores it.
bool has_scales(const Precision& precision) {
  ArchiveWriter own = ArchiveWriter::of_shapes();
  precision.save(own);
  return own.has_under("precision.");
}

}  // namespace

/// Whether this rank's stage stores the entry of a checkpoint. What belongs to a parameter or buffer is stored by the
/// stage that has its unit, random states by each rank, and the rest by the first stage.
bool Step::stores(const std::string& name) const {
  if (plan_.stages.stages() == 1 || name.starts_with("random.")) return true;
  const StateEntry* owner = nullptr;
  for (const StateEntry& entry : model_->entries())  // "model.layer1.0.bn1.weight" also ends in ".bn1.weight"
    if (name.ends_with("." + entry.name) && (!owner || entry.name.size() > owner->name.size())) owner = &entry;
  return owner ? plan_.stages.held().contains(owner->unit) : plan_.stages.is_first();
}

void Step::save(ArchiveWriter& archive) const {
  archive.keep_only([this](const std::string& name) { return stores(name); });
  std::vector<at::Tensor> parameters;
  for (const auto& [name, parameter] : parameters_->parameters()) parameters.push_back(parameter);
  parameters_->save(archive, "model.", parameters);
  for (const auto& [name, buffer] : model_->buffers()) archive.tensor("model." + name, buffer);
  parameters_->save_pending(archive);
  optimizer_->save(archive);
  precision_->save(archive);
  average_->save(archive);
  archive.own_tensor(random_name(communicator_.rank()), training_.generator->get_state());
  archive.value("ranks", communicator_.ranks());
}

void Step::load(const ArchiveReader& archive, const ArchiveWriter& expected) {
  // New scales start from their initial values, and those no longer used are dropped; everything else must be present.
  const bool same_precision = archive.has_under("precision.") == has_scales(*precision_);
  at::Tensor random_state = training_.generator->get_state();
  const std::string random = random_name(communicator_.rank());
  // Generator states of CPU and GPU differ, and so do those of another number of ranks.
  const bool same_generator = archive.has_under(random) && archive.tensor(random).sizes() == random_state.sizes() &&
                              archive.values().value("ranks", int64_t{1}) == communicator_.ranks();
  std::vector<std::string> ignored{"random."};
  if (!same_precision) ignored.push_back("precision.");
  archive.require_like(expected, ignored);
  std::vector<at::Tensor> parameters;
  for (const auto& [name, parameter] : parameters_->parameters()) parameters.push_back(parameter);
  parameters_->load(archive, "model.", parameters);
  parameters_->updated();
  parameters_->load_pending(archive);
  for (auto [name, buffer] : model_->buffers()) archive.tensor("model." + name, buffer);
  optimizer_->load(archive);
  if (same_precision)
    precision_->load(archive);
  else
    log_warning("the checkpoint was saved with another precision: {}",
                archive.has_under("precision.") ? "its scales are dropped" : "scales start from their initial values");
  average_->load(archive);
  if (same_generator) {
    archive.tensor(random, random_state);
    training_.generator->set_state(random_state);
    return;
  }
  log_warning(
      "the checkpoint was saved on another kind of device or number of ranks: the model's random numbers (dropout) "
      "are reseeded");
  training_.generator->set_current_seed(plan_.seed +
                                        static_cast<uint64_t>(archive.integer("step") + communicator_.rank()));
}

/// `own`: what this stage has. On every rank: the parameters and buffers of all stages.
NamedTensors Step::of_all_stages(const NamedTensors& own) const {
  const std::map<std::string, at::Tensor> here(own.begin(), own.end());
  NamedTensors all;
  for (const StateEntry& entry : model_->entries()) {
    const int64_t root = plan_.stages.first_rank_of(plan_.stages.stage_of(entry.unit));
    const at::Tensor tensor = communicator_.rank() == root
                                  ? here.at(entry.name).detach().contiguous()
                                  : at::empty(entry.tensor.sizes(), entry.tensor.options().device(plan_.device));
    communicator_.broadcast(tensor, root)->wait();
    all.emplace_back(entry.name, tensor);
  }
  return all;
}

NamedTensors Step::weights() const {
  std::vector<at::Tensor> own;
  for (const auto& [name, parameter] : parameters_->parameters()) own.push_back(parameter);
  const NamedTensors complete = parameters_->complete(own);
  const std::map<std::string, at::Tensor> found(complete.begin(), complete.end());
  NamedTensors state = model_->state();
  for (auto& [name, tensor] : state)
    if (const auto parameter = found.find(name); parameter != found.end()) tensor = parameter->second;
  if (plan_.stages.stages() > 1) state = of_all_stages(state);
  if (communicator_.rank() != 0) return {};
  return model_->as_in_files(std::move(state));
}

}  // namespace trainopt
