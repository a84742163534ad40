#include "base/log.h"
#include "train/trainer.h"

#include "device/tensor.h"
#include "device/tensor_memory.h"
#include "train/checkpoint/checkpoint_files.h"

#include <map>

// Saving a trainer's state to a checkpoint and resuming from it.
namespace trainopt {
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

Json evaluation_identity(const Plan& plan) {
  return plan.evaluation ? to_json(plan.evaluation->data.identity()) : Json();
}

/// Whether a checkpoint's evaluation data is this plan's. If there was other data before, says so.
bool has_same_evaluation_data(const Plan& plan, const Json& stored) {
  if (stored.is_null() || !plan.evaluation) return stored.is_null() && !plan.evaluation;
  const auto difference = first_difference(identity_from(stored), plan.evaluation->data.identity());
  if (difference)
    log_warning("the evaluation data is not the checkpoint's, so evaluations before and after it do not compare: {}",
                *difference);
  return !difference;
}

void warn_of_other_versions(const DataIdentity& stored, const DataIdentity& now) {
  if (has_other_versions(stored, now))
    log_warning(
        "the files of the data set were written anew since the checkpoint: their times (of remote ones, their ETags) "
        "differ, but nothing else that was compared");
}

}  // namespace

void Trainer::open_batches() {
  bad_samples_ = bad_samples();
  batches_.reset();  // release its memory first
  const MemoryScope scope({.use = MemoryUse::batches, .phase = "opening the data"});
  batches_ = plan_.open_batches(plan_.data, {outcome_.steps, plan_.steps}, bad_samples_.training);
  forget_storage();
}

BadSamples Trainer::bad_samples() const {
  BadSamples all = bad_samples_;
  if (batches_) all.training = batches_->bad_samples();  // a source also knows earlier ones
  return all;
}

void Trainer::begin_resumed() {
  if (checkpoints_ && !saved_at_) {  // first checkpoint of a fork, so that it can be resumed itself
    save_checkpoint();
    checkpoints_->finish();
  }
  if (evaluation_due() && evaluated_at_ != outcome_.steps) evaluate();  // a stop prevented this evaluation
}

void Trainer::save_checkpoint() {
  compare_replicas();  // so that no checkpoint has a difference
  at("saving a checkpoint");
  outcome_.wall_s = wall_s_before_ + seconds_since(started_);
  ArchiveWriter archive(plan_.stages.replica);  // the first rank of each stage stores what its replicas have, too
  save(archive);
  listener_.save(archive);
  checkpoints_->save(archive, outcome_.steps);
  saved_at_ = outcome_.steps;
  ranks_.drop_traffic();
  boundary_ = Clock::now();
}

void Trainer::save_model(ArchiveWriter& archive) const {
  std::vector<at::Tensor> parameters;
  for (const auto& [name, parameter] : parameters_->parameters()) parameters.push_back(parameter);
  parameters_->save(archive, "model.", parameters);
  for (const auto& [name, buffer] : model_->buffers()) archive.tensor("model." + name, buffer);
}

/// Whether this rank's stage stores the entry of a checkpoint. What belongs to a parameter or buffer is stored by the
/// stage that has its unit, random states by each rank, and the rest by the first stage.
bool Trainer::stores(const std::string& name) const {
  if (plan_.stages.stages() == 1 || name.starts_with("random.")) return true;
  const StateEntry* owner = nullptr;
  for (const StateEntry& entry : model_->entries())  // "model.layer1.0.bn1.weight" also ends in ".bn1.weight"
    if (name.ends_with("." + entry.name) && (!owner || entry.name.size() > owner->name.size())) owner = &entry;
  return owner ? plan_.stages.held().contains(owner->unit) : plan_.stages.is_first();
}

/// `own`: what this stage has. On every rank: the parameters and buffers of all stages.
NamedTensors Trainer::of_all_stages(const NamedTensors& own) const {
  const std::map<std::string, at::Tensor> here(own.begin(), own.end());
  NamedTensors all;
  for (const StateEntry& entry : model_->entries()) {
    const int64_t root = plan_.stages.first_rank_of(plan_.stages.stage_of(entry.unit));
    const at::Tensor tensor = communicator_->rank() == root
                                  ? here.at(entry.name).detach().contiguous()
                                  : at::empty(entry.tensor.sizes(), entry.tensor.options().device(plan_.device));
    communicator_->broadcast(tensor, root)->wait();
    all.emplace_back(entry.name, tensor);
  }
  return all;
}

NamedTensors Trainer::weights() const {
  std::vector<at::Tensor> own;
  for (const auto& [name, parameter] : parameters_->parameters()) own.push_back(parameter);
  const NamedTensors complete = parameters_->complete(own);
  const std::map<std::string, at::Tensor> found(complete.begin(), complete.end());
  NamedTensors state = model_->state();
  for (auto& [name, tensor] : state)
    if (const auto parameter = found.find(name); parameter != found.end()) tensor = parameter->second;
  if (plan_.stages.stages() > 1) state = of_all_stages(state);
  ranks_.drop_traffic();  // it belongs to no step
  if (communicator_->rank() != 0) return {};
  return model_->as_in_files(std::move(state));
}

void Trainer::write_weights(const std::filesystem::path& file) const {
  const NamedTensors all = weights();
  if (const auto bad = first_not_finite(all))
    throw UserError(fmt::format("the weights are non-finite after the last step, so {} was not written: {}",
                                file.filename().string(), *bad),
                    ExitCode::diverged);
  if (communicator_->rank() == 0) save_tensors(file, all, {{"format", "pt"}});
}

void Trainer::save(ArchiveWriter& archive) const {
  archive.keep_only([this](const std::string& name) { return stores(name); });
  save_model(archive);
  parameters_->save_pending(archive);
  optimizer_->save(archive);
  precision_->save(archive);
  average_->save(archive);
  archive.own_tensor(random_name(communicator_->rank()), training_.generator->get_state());
  archive.value("ranks", communicator_->ranks());
  archive.value("step", outcome_.steps);
  archive.value("samples", outcome_.samples);
  archive.value("seed", plan_.seed);
  archive.value("wall_s", outcome_.wall_s);
  archive.value("evaluation_s", outcome_.evaluation_s);
  archive.value("skipped_steps", outcome_.skipped_steps);
  archive.value("micro_split", outcome_.micro_split);
  archive.value("schedule_steps", plan_.schedule_steps);
  trainopt::save(bad_samples(), communicator_->position(), archive);
  archive.value("data", to_json(plan_.data.identity()));
  archive.value("evaluation_data", evaluation_identity(plan_));
  archive.value("evaluation", outcome_.evaluation ? to_json(*outcome_.evaluation) : Json());
  archive.value("evaluated_at", evaluated_at_ ? Json(*evaluated_at_) : Json());
}

void Trainer::load(const ArchiveReader& archive) {
  const DataIdentity stored = identity_from(archive.value("data"));
  plan_.data.require_identity(stored);
  if (communicator_->rank() == 0) warn_of_other_versions(stored, plan_.data.identity());  // others may have copies
  ArchiveWriter expected = ArchiveWriter::of_shapes();
  save(expected);
  // New scales start from their initial values, and those no longer used are dropped; everything else must be present.
  const bool same_precision = archive.has_under("precision.") == has_scales(*precision_);
  at::Tensor random_state = training_.generator->get_state();
  const std::string random = random_name(communicator_->rank());
  // Generator states of CPU and GPU differ, and so do those of another number of ranks.
  const bool same_generator = archive.has_under(random) && archive.tensor(random).sizes() == random_state.sizes() &&
                              archive.values().value("ranks", int64_t{1}) == communicator_->ranks();
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
  outcome_.steps = archive.integer("step");
  if (same_generator) {
    archive.tensor(random, random_state);
    training_.generator->set_state(random_state);
  } else {
    log_warning(
        "the checkpoint was saved on another kind of device or number of ranks: the model's random numbers (dropout) "
        "are reseeded");
    training_.generator->set_current_seed(plan_.seed + static_cast<uint64_t>(outcome_.steps + communicator_->rank()));
  }
  outcome_.resumed_from = outcome_.steps;
  outcome_.samples = archive.integer("samples");
  if (end_of(plan_.scheduler) && archive.integer("schedule_steps") != plan_.schedule_steps)
    log_warning(
        "the learning-rate schedule now ends at step {} instead of {} as in the checkpoint, so the rate jumps here; "
        "scheduler.total_steps can keep its end",
        plan_.schedule_steps, archive.integer("schedule_steps"));
  bad_samples_ = load_bad_samples(archive, communicator_->position());
  if (!has_same_evaluation_data(plan_, archive.values().value("evaluation_data", Json())))
    stop_counting_evaluation(bad_samples_);
  outcome_.skipped_steps = archive.integer("skipped_steps");
  outcome_.micro_split = archive.integer("micro_split");
  outcome_.wall_s = wall_s_before_ = archive.value("wall_s").get<double>();
  if (const Json& evaluation = archive.value("evaluation"); !evaluation.is_null())
    outcome_.evaluation = evaluation_from(evaluation);
  if (const Json& at = archive.value("evaluated_at"); !at.is_null()) evaluated_at_ = at.get<int64_t>();
  outcome_.evaluation_s = archive.values().value("evaluation_s", 0.0);  // older checkpoints lack it
  if (evaluated_at_ == outcome_.steps) note_target(wall_s_before_ - outcome_.evaluation_s);
}

}  // namespace trainopt
