#include "train/trainer.h"

#include "base/units.h"
#include "device/backend_settings.h"
#include "device/device.h"
#include "device/gpu_error.h"
#include "device/memory.h"
#include "device/tensor.h"
#include "device/tensor_memory.h"
#include "device/trace_range.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/micro_batches.h"
#include "train/observe/observed_step.h"

#include <algorithm>

namespace trainopt {

/// The results of a step's micro-batches.
struct Trainer::MicroBatchResults {
  PendingRecord record;
  std::shared_ptr<EventSpan> device_time;
  int64_t samples = 0, tokens = 0;
};

void Trainer::run() {
  or_gpu_lost([this] { train(); });
}

void Trainer::step() {
  or_gpu_lost([this] { take_step(); });
}

void Trainer::train() {
  started_ = boundary_ = Clock::now();
  agree();
  if (outcome_.resumed_from) begin_resumed();
  do {
    while (!finished()) take_step();
    deliver(async_reader_->flush());  // may find that the last steps must be repeated
  } while (!finished());
  profiler_->finish();
  memory_.finish(outcome_.trace);
  if (outcome_.steps > 0) compare_replicas();
  if (checkpoints_ && outcome_.steps > 0 && saved_at_ != outcome_.steps &&
      (plan_.checkpoint.at_end || ranks_.stopped()))
    save_checkpoint();
  outcome_.wall_s = wall_s_before_ + seconds_since(started_);
  outcome_.training_s = outcome_.wall_s - outcome_.evaluation_s;
  if (plan_.evaluation && plan_.evaluation->at_end && !ranks_.stopped() && evaluated_at_ != outcome_.steps) evaluate();
  agree();
  if (checkpoints_ && ranks_.stopped() && outcome_.steps > 0 && saved_at_ != outcome_.steps)
    save_checkpoint();  // the stop came during the evaluation
  if (checkpoints_) checkpoints_->finish();
  outcome_.stopped_by_signal = ranks_.agreed().stop_signal;
}

void Trainer::pause() {
  or_gpu_lost([this] {
    batches_->pause();
    synchronize(plan_.device);
    deliver(async_reader_->flush());
  });
  paused_ = true;
}

void Trainer::take_step() {
  if (std::exchange(paused_, false)) boundary_ = Clock::now();
  if (checkpoints_) checkpoints_->check();
  const BackendGuard settings(plan_.backend);
  if (process_steps_ == 0 && plan_.data.warmup_largest) run_largest_batch();
  const auto observed = ObservedStep::if_due(outcome_.trace, *parameters_, process_steps_,
                                             plan_.steps ? *plan_.steps - outcome_.steps : 2);
  const int64_t step = outcome_.steps + 1;
  const Profiling profiling = profiler_->begin_step(step);
  memory_.begin_step(step);
  in_step_ = true;
  const auto [learning_rate, momentum] = schedule_.at(step);
  optimizer_->set_learning_rate(learning_rate);
  if (momentum) optimizer_->set_momentum(*momentum);

  std::optional<MicroBatchResults> results;
  while (!results) results = run_micro_batches(step);  // repeats if memory runs out: without recordings, then smaller
  at("updating the weights");
  memory_.file_gradients(*parameters_);
  phases_.run(Metric::update_ms, [&] { grad_norm_ = runner_->update_step(body_); });
  phases_.move_to(results->record);

  results->device_time->end.record(Stream::current(plan_.device));
  outcome_.steps = step;
  in_step_ = false;
  outcome_.samples += results->samples;
  ++process_steps_;
  results->record.set(Metric::learning_rate, learning_rate);
  results->record.set(profiling);
  results->record.set_position(step, outcome_.samples, results->samples, plan_.data.samples());
  results->record.set_tokens(results->tokens);
  if (const auto least = plan_.peak.least_ms(plan_.model.training_flops(results->samples)))
    results->record.set_least_ms(*least);
  after_step(std::move(results->record), observed.get());
}

/// Runs forward and backward of all micro-batches of a step. If memory runs out, restores the state from before the
/// step and returns nullopt.
std::optional<Trainer::MicroBatchResults> Trainer::run_micro_batches(int64_t step) {
  guard_->begin(step, outcome_.samples);
  phases_.discard();
  MicroBatchResults results{.record = PendingRecord(boundary_),
                            .device_time = std::make_shared<EventSpan>(plan_.device)};
  results.record.add(Metric::device_ms, results.device_time);
  try {
    for (bool last = false; !last;) {
      const Batch batch = next_batch();
      if (batch.is_first)
        results.device_time->start.record(Stream::current(plan_.device));  // excludes the wait for data
      guard_->add_samples(batch.sample_ids);
      at("forward and backward");
      const int64_t wanted = outcome_.micro_split * plan_.stages.micro_batches,
                    pieces = pieces_of(batch, plan_, wanted, min_micro_batch_size()),
                    split = std::min(outcome_.micro_split, pieces);
      outcome_.trace.largest_micro_batch =
          std::max(outcome_.trace.largest_micro_batch, (batch.items + split - 1) / split);
      for (const Batch& micro : split_batch(batch, pieces)) {
        results.record.add(Metric::loss, runner_->micro_step(body_, micro));
      }
      results.samples = batch.step_items;
      results.tokens = batch.step_tokens;
      last = batch.is_last;
    }
  } catch (const std::exception& error) {  // named recovery: out of memory
    if (!is_out_of_memory(error)) throw;
    recover_memory(error);
    return std::nullopt;
  }
  return results;
}

Batch Trainer::next_batch() {
  at("waiting for data");
  const MemoryScope scope({.use = MemoryUse::batches, .phase = "loading"});
  return batches_->next();
}

/// Runs forward and backward of one micro-batch. Like update_step(), it decides nothing from values on the device, so
/// it can be recorded once and replayed.
at::Tensor Trainer::micro_step(const Batch& micro) {
  const at::Tensor loss = forward(micro);
  backward(loss, micro.is_last);
  return loss.detach();
}

at::Tensor Trainer::forward(const Batch& micro) {
  at::Tensor loss;
  phases_.run(Metric::forward_ms, [&] {
    const auto autocast = precision_->autocast();
    loss = task_->loss(*model_, micro.input, micro.target, training_).loss *
           micro.weight;  // makes the sum over micro-batches the step's mean
  });
  return loss;
}

void Trainer::backward(const at::Tensor& loss, bool is_last) {
  const auto scope = parameters_->accumulate(is_last);  // only the last micro-batch communicates
  phases_.run(Metric::backward_ms, [&] { precision_->backward(loss); });
  guard_->watch(loss);
}

at::Tensor Trainer::update_step() {
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

void Trainer::add_storage(const std::optional<StorageUse>& now, PendingRecord& record) {
  if (!now) return;
  const StorageUse before = std::exchange(storage_, *now);
  record.set(Metric::storage_mib, mib(now->fetched_bytes - before.fetched_bytes));
  const int64_t hit = now->hit_bytes - before.hit_bytes, missed = now->missed_bytes - before.missed_bytes;
  if (hit + missed > 0)
    record.set(Metric::cache_hit_pct, 100 * static_cast<double>(hit) / static_cast<double>(hit + missed));
}

/// Counts what was read until now to no step.
void Trainer::forget_storage() {
  if (plan_.data.files) storage_ = plan_.data.files->use().value_or(StorageUse());
}

void Trainer::after_step(PendingRecord record, ObservedStep* observed) {
  std::optional<TraceRange> range(std::in_place, "record");
  const auto stats = batches_->take_stats();
  if (observed) observed->finish({outcome_.steps, stats, *parameters_, *optimizer_, gradient_bytes_});
  memory_.end_step(outcome_.steps, observed != nullptr, outcome_.trace);
  runner_->report(outcome_.trace);
  outcome_.trace.loader.copies = stats.copies;
  // Counted over the whole run, because an epoch may end much later than the observed step.
  outcome_.trace.loader.threads = stats.threads;
  outcome_.trace.loader.thread_starts = stats.thread_starts;
  if (stats.work) (outcome_.loading ? *outcome_.loading : outcome_.loading.emplace()) += *stats.work;
  record.set(Metric::data_wait_ms, stats.data_wait_ms);
  if (stats.copy_ms) record.set(Metric::copy_ms, *stats.copy_ms);
  add_storage(stats.storage, record);
  if (grad_norm_.defined()) record.add(Metric::grad_norm, grad_norm_);
  if (const auto scale = precision_->loss_scale(); scale.defined()) record.add(Metric::loss_scale, scale);
  if (guard_->flag().defined()) record.add(Metric::nonfinite, guard_->flag());
  record.set_memory(plan_.device);
  add_memory_and_traffic(record);
  const int64_t step = outcome_.steps;
  const bool evaluates = evaluation_due();
  const bool saves = checkpoints_ && (ranks_.agreed().save || checkpoints_->due(step));
  const bool compares = replica_check_->due(step), recorded = profiler_->ends_recording(),
             waits = compares || evaluates || saves || recorded;
  if (waits)
    synchronize(plan_.device);  // all of them would wait for this work anyway; here the time counts as the step's
  record.finish();
  async_reader_->submit(std::move(record));
  range.reset();
  if (recorded) batches_->pause();  // loading meanwhile would spare the next steps their wait
  profiler_->end_step();
  profiler_->report(outcome_.trace);
  if (recorded) ranks_.drop_traffic();
  boundary_ = Clock::now();
  // Wait for the first step, because the summary reports when it ended. Also wait before comparing, evaluating or
  // saving, because the state must be known to be finite.
  deliver(process_steps_ == 1 || waits ? async_reader_->flush() : async_reader_->poll());
  if (!outcome_.time_to_first_step_s) outcome_.time_to_first_step_s = seconds_since(started_);
  if (outcome_.steps != step) return agree();  // the step was undone
  if (compares) compare_replicas();
  const auto timed = [](double& seconds, const auto& work) {
    const auto began = Clock::now();
    work();
    seconds += seconds_since(began);
  };
  if (evaluates) {
    timed(outcome_.between.evaluation_s, [&] { evaluate(); });
    forget_storage();
  }
  if (saves) timed(outcome_.between.checkpoint_s, [&] { save_checkpoint(); });
  outcome_.wall_s = wall_s_before_ + seconds_since(started_);
  outcome_.training_s = outcome_.wall_s - outcome_.evaluation_s;
  agree();
}

bool Trainer::finished() const {
  return (plan_.steps && outcome_.steps >= *plan_.steps) || outcome_.target || ranks_.stopped() ||
         ranks_.agreed().out_of_time;
}

void Trainer::agree() {
  const bool late = plan_.train.max_time && outcome_.steps > 0 &&
                    wall_s_before_ + seconds_since(started_) >= plan_.train.max_time->seconds;
  ranks_.agree(
      {.stop_signal = stop_signal_.load(), .save = checkpoints_ && checkpoints_->requested(), .out_of_time = late});
}

void Trainer::add_memory_and_traffic(PendingRecord& record) {
  record.set(Metric::parameters_mib, mib(parameters_->parameter_bytes()));
  record.set(Metric::gradients_mib, mib(gradient_bytes_));
  record.set(Metric::optimizer_mib, mib(optimizer_->state_bytes()));
  const RankAgreement::Sent sent = ranks_.add_traffic(record);
  if (outcome_.trace.step != outcome_.steps) return;
  outcome_.trace.sent_bytes = sent.all;
  outcome_.trace.across_bytes = sent.across;
}

/// Does nothing if this step's weights have been compared.
void Trainer::compare_replicas() {
  if (!replica_check_->enabled() || compared_at_ == outcome_.steps) return;
  at("comparing the weights over the ranks");
  const auto began = Clock::now();
  NamedTensors copies = parameters_->replicated();
  if (plan_.parallel.sync_batch_norm)  // otherwise every rank has its own statistics
    for (const auto& entry : model_->buffers()) copies.push_back(entry);
  replica_check_->compare(copies, outcome_.steps);
  compared_at_ = outcome_.steps;
  ++outcome_.replicas.passed;
  outcome_.replicas.wall_s += seconds_since(began);
  ranks_.drop_traffic();
  boundary_ = Clock::now();
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

bool Trainer::evaluation_due() const {
  return plan_.evaluation && plan_.evaluation->every_n_steps && outcome_.steps % *plan_.evaluation->every_n_steps == 0;
}

void Trainer::evaluate() {
  const BackendGuard settings(plan_.backend);
  deliver(async_reader_->flush());
  const auto began = Clock::now();
  ranks_.broadcast_buffers(*model_, groups_->replicas());
  const auto stopped = [&] {
    at("evaluating");
    agree();
    return ranks_.stopped();
  };
  const auto evaluated = [&] {
    return evaluate_within_memory([&] {
      return trainopt::evaluate(*model_, *task_, *precision_, plan_, *communicator_, bad_samples_.evaluation, stopped);
    });
  };
  auto result = evaluated();
  if (result)
    with_average([&] {
      ranks_.broadcast_buffers(*model_, groups_->replicas());  // each rank has averages of its own statistics
      if (const auto average = evaluated())
        result->average = {average->loss, average->top1_pct, average->top5_pct, average->perplexity};
      else
        result.reset();  // stopped
    });
  if (result) {
    outcome_.evaluation = result;
    evaluated_at_ = outcome_.steps;
    note_target(wall_s_before_ + milliseconds_between(started_, began) / 1e3 - outcome_.evaluation_s);
    listener_.evaluated(outcome_.steps, *result);
  }
  outcome_.evaluation_s += seconds_since(began);
  ranks_.drop_traffic();
  boundary_ = Clock::now();
}

bool Trainer::with_average(const std::function<void()>& work) {
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
  for (int passes = 0; passes < 2;) {
    guard_->begin(outcome_.steps + 1, outcome_.samples);
    try {
      const int64_t pieces = outcome_.micro_split * plan_.stages.micro_batches;
      for (const Batch& micro : split_batch(batch, pieces, min_micro_batch_size())) micro_step(micro);
    } catch (const std::exception& error) {  // named recovery: out of memory
      if (!is_out_of_memory(error)) throw;
      recover_memory(error);
      continue;
    }
    guard_->rollback();
    const auto flag = at::TensorOptions(plan_.device).dtype(at::kFloat);
    precision_->update(/*overflow=*/at::zeros({}, flag), /*rolled_back=*/at::ones({}, flag));
    Gradients& gradients = parameters_->finish_gradients();
    if (++passes == 2) gradients.clear();
  }
  phases_.discard();
  ranks_.drop_traffic();
  boundary_ = Clock::now();
}

}  // namespace trainopt
