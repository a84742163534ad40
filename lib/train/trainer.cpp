#include "train/trainer.h"

#include "base/log.h"
#include "device/backend_settings.h"
#include "device/device.h"
#include "device/gpu_error.h"
#include "device/tensor.h"
#include "device/tensor_memory.h"
#include "device/trace_range.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/micro_batches.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace trainopt {

/// The results of a step's micro-batches.
struct Trainer::MicroBatchResults {
  PendingRecord record;
  std::shared_ptr<EventSpan> device_time;
  int64_t samples = 0, tokens = 0;
};

namespace {

Batch next_batch(BatchSource& batches) {
  const MemoryScope scope({.use = MemoryUse::batches, .phase = "loading"});
  return batches.next();
}

}  // namespace

void Trainer::run() {
  or_gpu_lost([this] { train(); });
}

void Trainer::step() {
  or_gpu_lost([this] { take_step(); });
}

void Trainer::train() {
  times_.started = times_.boundary = Clock::now();
  agree();
  if (outcome_.resumed_from) {
    if (checkpoints_ && !last_.saved) {  // first checkpoint of a fork, so that it can be resumed itself
      save_checkpoint();
      checkpoints_->finish();
    }
    if (plan_.evaluates_after(outcome_.steps) && last_.evaluated != outcome_.steps)
      evaluate();  // a stop prevented this evaluation
  }
  do {
    while (!finished()) take_step();
    recovery_.deliver(async_reader_->flush());  // may find that the last steps must be repeated
  } while (!finished());
  watch_.finish();
  if (at::Tensor skipped = step_->precision().skipped_updates(); skipped.defined()) {
    skipped = skipped.cpu();
    outcome_.trace.skipped_updates = {skipped[0].item<int64_t>(), skipped[1].item<int64_t>()};
  }
  if (outcome_.steps > 0) compare_replicas();
  const auto save_end = [this] {
    if (checkpoints_ && outcome_.steps > 0 && last_.saved != outcome_.steps) save_checkpoint();
  };
  if (plan_.checkpoint.at_end || ranks_.stopped()) save_end();
  outcome_.wall_s = times_.wall_s();
  outcome_.training_s = outcome_.wall_s - outcome_.evaluation_s;
  if (plan_.evaluation && plan_.evaluation->at_end && !ranks_.stopped() && last_.evaluated != outcome_.steps)
    evaluate();
  agree();
  if (ranks_.stopped()) save_end();  // the stop came during the evaluation
  if (checkpoints_) checkpoints_->finish();
  outcome_.stopped_by_signal = ranks_.agreed().stop_signal;
}

void Trainer::pause() {
  or_gpu_lost([this] {
    batches_->pause();
    synchronize(plan_.device);
    recovery_.deliver(async_reader_->flush());
  });
  paused_ = true;
}

void Trainer::take_step() {
  const Scope stop_recording([this] { watch_.stop_observing(); });  // also if the step fails
  if (std::exchange(paused_, false)) times_.boundary = Clock::now();
  if (checkpoints_) checkpoints_->check();
  const BackendGuard settings(plan_.backend);
  if (watch_.steps() == 0 && plan_.data.warmup_largest) run_largest_batch();
  const int64_t step = outcome_.steps + 1;
  watch_.begin();
  place_.in_step = true;
  const auto [learning_rate, momentum] = schedule_.at(step);
  step_->optimizer().set_learning_rate(step <= plan_.still_steps ? 0 : learning_rate);
  if (momentum) step_->optimizer().set_momentum(*momentum);

  std::optional<MicroBatchResults> done;
  recovery_.retry_if_out_of_memory([&] { done = run_micro_batches(); });
  at("updating the weights");
  watch_.file_gradients();
  const at::Tensor grad_norm = step_->update();

  done->device_time->end.record(Stream::current(plan_.device));
  outcome_.steps = step;
  outcome_.samples += done->samples;
  place_.in_step = false;
  done->record.set(Metric::learning_rate, learning_rate);
  done->record.set_position(step, outcome_.samples, done->samples, plan_.data.samples());
  done->record.set_tokens(done->tokens);
  if (const auto least = plan_.peak.least_ms(plan_.model.training_flops(done->samples)))
    done->record.set_least_ms(*least);
  after_step(std::move(done->record), grad_norm);
}

/// Runs forward and backward of all micro-batches of a step.
Trainer::MicroBatchResults Trainer::run_micro_batches() {
  step_->phases().discard();
  MicroBatchResults results{.record = PendingRecord(times_.boundary),
                            .device_time = std::make_shared<EventSpan>(plan_.device)};
  results.record.add(Metric::device_ms, results.device_time);
  for (bool last = false; !last;) {
    at("waiting for data");
    const Batch batch = next_batch(*batches_);
    if (batch.is_first) results.device_time->start.record(Stream::current(plan_.device));  // excludes the wait for data
    step_->guard().add_samples(batch.sample_ids);
    at("forward and backward");
    const int64_t wanted = outcome_.micro_split * plan_.stages.micro_batches,
                  pieces = pieces_of(batch, plan_, wanted, step_->min_micro_batch_size()),
                  split = std::min(outcome_.micro_split, pieces);
    outcome_.trace.largest_micro_batch =
        std::max(outcome_.trace.largest_micro_batch, (batch.items + split - 1) / split);
    for (const Batch& micro : split_batch(batch, pieces))
      results.record.add(Metric::loss, step_->run_micro_batch(micro));
    results.samples = batch.step_items;
    results.tokens = batch.step_tokens;
    last = batch.is_last;
  }
  return results;
}

void Trainer::after_step(PendingRecord record, const at::Tensor& grad_norm) {
  std::optional<TraceRange> range(std::in_place, "record");
  watch_.fill(record, *batches_, grad_norm);
  const int64_t step = outcome_.steps;
  const bool evaluates = plan_.evaluates_after(step);
  const bool saves = checkpoints_ && (ranks_.agreed().save || checkpoints_->due(step));
  const bool compares = replica_check_->due(step), recorded = watch_.ends_recording(),
             waits = compares || evaluates || saves || recorded;
  if (waits)
    synchronize(plan_.device);  // all of them would wait for this work anyway; here the time counts as the step's
  record.finish();
  async_reader_->submit(std::move(record));
  range.reset();
  if (recorded) batches_->pause();  // batches loaded while the trace is written would hide the next steps' waits
  watch_.end();
  times_.boundary = Clock::now();
  // Wait for the first step, because the summary reports when it ended. Also wait before comparing, evaluating or
  // saving, because the state must be known to be finite.
  recovery_.deliver(watch_.steps() == 1 || waits ? async_reader_->flush() : async_reader_->poll());
  if (!outcome_.time_to_first_step_s) outcome_.time_to_first_step_s = seconds_since(times_.started);
  if (outcome_.steps != step) return agree();  // the step was undone
  if (compares) compare_replicas();
  const auto timed = [](double& seconds, const auto& work) {
    const auto began = Clock::now();
    work();
    seconds += seconds_since(began);
  };
  if (evaluates) {
    timed(outcome_.between.evaluation_s, [&] { evaluate(); });
    watch_.forget_storage();
  }
  if (saves) timed(outcome_.between.checkpoint_s, [&] { save_checkpoint(); });
  outcome_.wall_s = times_.wall_s();
  outcome_.training_s = outcome_.wall_s - outcome_.evaluation_s;
  agree();
}

void Trainer::begin_between_steps() {
  ranks_.drop_traffic();
  times_.boundary = Clock::now();
}

bool Trainer::finished() const {
  return (plan_.steps && outcome_.steps >= *plan_.steps) || outcome_.target || ranks_.stopped() ||
         ranks_.agreed().out_of_time;
}

void Trainer::agree() {
  const bool late = plan_.train.max_time && outcome_.steps > 0 && times_.wall_s() >= plan_.train.max_time->seconds;
  ranks_.agree(
      {.stop_signal = stop_signal_.load(), .save = checkpoints_ && checkpoints_->requested(), .out_of_time = late});
}

/// Does nothing if this step's weights have been compared.
void Trainer::compare_replicas() {
  if (!replica_check_->enabled() || last_.compared == outcome_.steps) return;
  at("comparing the weights over the ranks");
  const auto began = Clock::now();
  NamedTensors copies = step_->parameters().replicated();
  if (plan_.parallel.sync_batch_norm)  // otherwise every rank has its own statistics
    for (const auto& entry : step_->model().buffers()) copies.push_back(entry);
  replica_check_->compare(copies, outcome_.steps);
  last_.compared = outcome_.steps;
  ++outcome_.replicas.passed;
  outcome_.replicas.wall_s += seconds_since(began);
  begin_between_steps();
}

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
      step_(std::make_unique<Step>(plan_, *communicator_, outcome_.steps)),
      watch_(plan_, *step_, ranks_, outcome_, memory),
      recovery_({.plan = plan_,
                 .step = *step_,
                 .watch = watch_,
                 .ranks = ranks_,
                 .listener = listener_,
                 .outcome = outcome_,
                 .reopen_data = [this] { open_batches(); },
                 .start_again =
                     [this] {
                       async_reader_->flush();
                       open_batches();
                       begin_between_steps();
                     }}),
      schedule_(plan_.schedule()) {}

void Trainer::build(const std::filesystem::path& run_dir, const Persistence& persistence) {
  at("building the model");
  async_reader_.emplace(plan_.device, /*fixed_delay=*/communicator_->ranks() > 1);
  step_->build(run_dir, /*is_resumed=*/persistence.resume != nullptr);
  for (Communicator* group : step_->groups().of_pipeline()) ranks_.also_count(*group);
  for (Communicator* of_store : step_->parameters().communicators()) ranks_.also_count(*of_store);
  replica_check_.emplace(step_->groups().replicas(), plan_.parallel.check_replicas_every);
  watch_.attach(run_dir);
  if (persistence.resume) {
    at("loading the checkpoint");
    load(*persistence.resume);
    if (!persistence.forks) last_.saved = outcome_.steps;
  }
  at("opening the data");
  open_batches();
  times_.started = times_.boundary = Clock::now();
}

void Trainer::open_batches() {
  bad_samples_ = bad_samples();
  batches_.reset();  // release its memory first
  const MemoryScope scope({.use = MemoryUse::batches, .phase = "opening the data"});
  batches_ = plan_.open_batches(plan_.data, {outcome_.steps, plan_.steps}, bad_samples_.training);
  watch_.forget_storage();
}

BadSamples Trainer::bad_samples() const {
  BadSamples all = bad_samples_;
  if (batches_) all.training = batches_->bad_samples();  // a source also knows earlier ones
  return all;
}

void Trainer::evaluate() {
  const BackendGuard settings(plan_.backend);
  recovery_.deliver(async_reader_->flush());
  const auto began = Clock::now();
  const auto stopped = [&] {
    at("evaluating");
    agree();
    return ranks_.stopped();
  };
  const auto evaluated = [&] {
    // The ranks have batch-norm statistics, and averages of them, of their own.
    ranks_.broadcast_buffers(step_->model(), step_->groups().replicas());
    return recovery_.evaluate_with_retry([&] {
      return trainopt::evaluate(step_->model(), step_->task(), step_->precision(), plan_, *communicator_,
                                bad_samples_.evaluation, stopped);
    });
  };
  auto result = evaluated();
  if (result)
    step_->with_average([&] {
      if (const auto average = evaluated())
        result->average = {average->loss, average->top1_pct, average->top5_pct, average->perplexity};
      else
        result.reset();  // stopped
    });
  if (result) {
    outcome_.evaluation = result;
    last_.evaluated = outcome_.steps;
    note_target(times_.wall_s_before + milliseconds_between(times_.started, began) / 1e3 - outcome_.evaluation_s);
    listener_.evaluated(outcome_.steps, *result);
  }
  outcome_.evaluation_s += seconds_since(began);
  begin_between_steps();
}

void Trainer::note_target(double training_s) {
  if (!outcome_.target && reached(goal_of(plan_.train.target), *outcome_.evaluation))
    outcome_.target = TargetReached{outcome_.steps, outcome_.samples, training_s};
}

/// data.warmup_largest: forward and backward of the largest batch that may come, before the first step, so that the
/// allocator holds what any later batch needs. Twice: from the second step on, forward may run beside gradients. They
/// are dropped, and random numbers and the precision's state returned, so the training is the same without it. If
/// memory runs out, in smaller pieces from then on, as in a step.
void Trainer::run_largest_batch() {
  at("running the largest batch");
  const Batch batch = largest_batch(plan_.data, plan_.device);
  for (const bool last : {false, true}) {
    recovery_.retry_if_out_of_memory([&] {
      const int64_t pieces = outcome_.micro_split * plan_.stages.micro_batches;
      for (const Batch& micro : split_batch(batch, pieces, step_->min_micro_batch_size())) step_->micro_step(micro);
    });
    step_->guard().rollback();
    const auto flag = at::TensorOptions(plan_.device).dtype(at::kFloat);
    step_->precision().update(/*overflow=*/at::zeros({}, flag), /*rolled_back=*/at::ones({}, flag));
    Gradients& gradients = step_->parameters().finish_gradients();
    if (last) gradients.clear();
  }
  step_->phases().discard();
  begin_between_steps();
}

namespace {

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

void Trainer::save_checkpoint() {
  compare_replicas();  // so that no checkpoint has a difference
  at("saving a checkpoint");
  outcome_.wall_s = times_.wall_s();
  ArchiveWriter archive(plan_.stages.replica);  // the first rank of each stage stores what its replicas have, too
  save(archive);
  listener_.save(archive);
  checkpoints_->save(archive, outcome_.steps);
  last_.saved = outcome_.steps;
  begin_between_steps();
}

void Trainer::save(ArchiveWriter& archive) const {
  step_->save(archive);
  archive.value("step", outcome_.steps);
  archive.value("samples", outcome_.samples);
  archive.value("seed", plan_.seed);
  archive.value("wall_s", outcome_.wall_s);
  archive.value("evaluation_s", outcome_.evaluation_s);
  archive.value("skipped_steps", outcome_.skipped_steps);
  archive.value("steps_per_epoch", plan_.data.schedule().steps_per_epoch());
  archive.value("micro_split", outcome_.micro_split);
  archive.value("schedule_steps", plan_.schedule_steps);
  trainopt::save(bad_samples(), communicator_->position(), archive);
  archive.value("data", to_json(plan_.data.identity()));
  archive.value("evaluation_data", evaluation_identity(plan_));
  archive.value("evaluation", outcome_.evaluation ? to_json(*outcome_.evaluation) : Json());
  archive.value("evaluated_at", last_.evaluated ? Json(*last_.evaluated) : Json());
}

void Trainer::load(const ArchiveReader& archive) {
  const DataIdentity stored = identity_from(archive.value("data"));
  plan_.data.require_identity(stored);
  if (communicator_->rank() == 0) warn_of_other_versions(stored, plan_.data.identity());  // others may have copies
  const int64_t now = plan_.data.schedule().steps_per_epoch();
  if (const int64_t before = archive.values().value("steps_per_epoch", now); before != now)  // older ones lack it
    throw UserError(
        fmt::format("an epoch has other steps than in the checkpoint, because another last batch is left out; restore "
                    "data.batch_size and the number of ranks: {}, {}",
                    now, before),
        ExitCode::checkpoint);
  ArchiveWriter expected = ArchiveWriter::of_shapes();
  save(expected);
  step_->load(archive, expected);
  outcome_.steps = archive.integer("step");
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
  outcome_.wall_s = times_.wall_s_before = archive.value("wall_s").get<double>();
  if (const Json& evaluation = archive.value("evaluation"); !evaluation.is_null())
    outcome_.evaluation = evaluation_from(evaluation);
  if (const Json& at = archive.value("evaluated_at"); !at.is_null()) last_.evaluated = at.get<int64_t>();
  outcome_.evaluation_s = archive.values().value("evaluation_s", 0.0);  // older checkpoints lack it
  if (last_.evaluated == outcome_.steps) note_target(times_.wall_s_before - outcome_.evaluation_s);
}

NamedTensors Trainer::weights() const {
  NamedTensors all = step_->weights();
  ranks_.drop_traffic();  // it belongs to no step
  return all;
}

void write_weights(const Trainer& trainer, const std::filesystem::path& file) {
  const NamedTensors all = trainer.weights();
  if (const auto bad = first_not_finite(all))
    throw UserError(fmt::format("the weights are non-finite after the last step, so {} was not written: {}",
                                file.filename().string(), *bad),
                    ExitCode::diverged);
  if (trainer.plan().position.rank == 0) save_tensors(file, all, {{"format", "pt"}});
}

void Trainer::at(const char* stage) {
  place_.stage = stage;
  listener_.at(stage, outcome_.steps);
}

void Trainer::or_gpu_lost(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {  // named recovery: none is possible, but the message says where it happened
    const auto fault = gpu_fault(error);
    place_.gpu_lost = place_.gpu_lost || fault;
    if (!fault || dynamic_cast<const GpuLost*>(&error)) throw;
    const std::string when = place_.in_step        ? fmt::format("in step {}", outcome_.steps + 1)
                             : outcome_.steps == 0 ? "before the first step"
                                                   : fmt::format("after step {}", outcome_.steps);
    throw GpuLost(*fault,
                  fmt::format("{}, {}, {}", when, place_.stage,
                              gpu_label(plan_.device, plan_.machine.gpu, plan_.machine.gpu_uuid)),
                  last_.saved);
  }
}

void Trainer::during(const char* stage, const std::function<void()>& work) {
  at(stage);
  or_gpu_lost(work);
}

namespace {

/// Keeps a value to the end of the process, without running its destructor.
template <class T>
void never_destroy(T value) {
  static auto& kept = *new std::deque<T>;
  kept.push_back(std::move(value));
}

}  // namespace

/// After a GPU fault freeing GPU memory, events or page-locked memory throws, which libtorch's destructors must not.
Trainer::~Trainer() {
  if (!place_.gpu_lost) return;
  never_destroy(std::move(batches_));
  never_destroy(std::move(step_));
  never_destroy(std::move(async_reader_));
  never_destroy(std::move(communicator_));
  never_destroy(std::move(plan_));  // may hold a data set on the device
}

}  // namespace trainopt
