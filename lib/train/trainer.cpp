#include "train/trainer.h"

#include "base/counted.h"
#include "base/host_name.h"
#include "device/device.h"
#include "device/caching_allocator.h"
#include "device/memory.h"
#include "train/checkpoint_writer.h"
#include "train/micro_batches.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <spdlog/spdlog.h>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

constexpr int64_t kObservedStep = 2;  // the first is full of one-off work

/// Draws of the model itself (dropout), apart from every other trainer's in this process.
at::Generator model_generator(at::Device device, uint64_t seed) {
  if (device.is_cpu()) return at::detail::createCPUGenerator(seed);
  at::Generator generator =
      at::globalContext().getAcceleratorHooksInterface(device.type()).getNewGenerator(device.index());
  generator.set_current_seed(seed);
  return generator;
}

int64_t page_faults() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

std::string numbers_of(const StepRecord& row) {
  std::string text = fmt::format("step {}, loss {}", row.step(), *row[Metric::loss]);
  if (row[Metric::grad_norm]) text += fmt::format(", gradient norm {}", *row[Metric::grad_norm]);
  return text;
}

/// Of the state of the model's random numbers: each rank has its own.
std::string random_name(int64_t rank) { return rank == 0 ? "random.model" : fmt::format("random.model.{}", rank); }

double mib(int64_t bytes) { return static_cast<double>(bytes) / 0x1p20; }

}  // namespace

/// What the micro-batches of a step left behind.
struct Trainer::Taken {
  PendingRecord record;
  std::shared_ptr<EventSpan> device_time;
  int64_t samples = 0;
};

Trainer::Trainer(Plan plan, std::filesystem::path run_dir, RunListener& listener, const std::atomic<int>& stop_signal,
                 Persistence persistence, std::shared_ptr<Communicator> communicator)
    : plan_(std::move(plan)),
      listener_(listener),
      stop_signal_(stop_signal),
      checkpoints_(persistence.checkpoints),
      communicator_(std::move(communicator)),
      schedule_(plan_.scheduler, base_learning_rate(plan_.optimizer_config), plan_.schedule_steps),
      async_reader_(plan_.device, /*steady=*/communicator_->ranks() > 1) {
  listener_.at("building the model", 0);
  ModelPlan model = plan_.model;
  if (persistence.resume) model.config.weights.reset();  // those to begin with are not needed any more
  model_ = model.build(plan_.device, plan_.seed);
  training_ = {.training = true,
               .generator = model_generator(plan_.device, plan_.seed + static_cast<uint64_t>(communicator_->rank()))};
  guard_ = std::make_unique<StepGuard>(*model_, plan_.device, *training_.generator,
                                       plan_.train.on_nonfinite != OnNonfinite::abort);
  BuildContext context{plan_,        plan_.device, std::move(run_dir), communicator_.get(),
                       model_.get(), nullptr,      &outcome_.steps,    training_.generator};
  parameters_ = plan_.parameters.build(context);
  context.parameters = parameters_.get();
  task_ = plan_.task.build(context);
  precision_ = plan_.precision.build(context);
  optimizer_ = plan_.optimizer.build(context);
  parameters_->set_form(optimizer_->make_gradients());
  runner_ = plan_.runner.build(context);
  average_ = plan_.average.build(context);
  body_ = {.micro_step = [this](const Batch& micro) { return micro_step(micro); },
           .update_step = [this] { return update_step(); }};
  outcome_.observations.parameters = static_cast<int64_t>(parameters_->parameters().size());
  if (persistence.resume) load(*persistence.resume);
  if (persistence.resume && !persistence.forks) saved_at_ = outcome_.steps;
  open_batches();
  started_ = boundary_ = Clock::now();
}

void Trainer::open_batches() {
  if (batches_) bad_samples_ = bad_samples();
  batches_.reset();  // its memory first
  batches_ = plan_.data.open(plan_.device, plan_.steps, outcome_.steps, bad_samples_);
}

std::vector<RefusedSample> Trainer::bad_samples() const {
  return batches_ ? batches_->bad_samples() : bad_samples_;  // a source knows those from before
}

void Trainer::run() {
  started_ = boundary_ = Clock::now();
  agree();
  if (checkpoints_ && outcome_.resumed_from &&
      !saved_at_) {  // a fork's own first one: from here on it can be resumed itself
    save_checkpoint();
    checkpoints_->finish();
  }
  if (outcome_.resumed_from && evaluation_due() && evaluated_at_ != outcome_.steps)
    evaluate();  // a stop had come between
  do {
    while (!finished()) step();
    deliver(async_reader_.flush());  // may find that the last steps must be taken again
  } while (!finished());
  if (checkpoints_ && outcome_.steps > 0 && saved_at_ != outcome_.steps &&
      (plan_.checkpoint.at_end || agreed_.stop_signal != 0))
    save_checkpoint();
  outcome_.wall_s = wall_s_before_ + seconds_since(started_);
  if (plan_.evaluation && plan_.evaluation->at_end && agreed_.stop_signal == 0 && evaluated_at_ != outcome_.steps)
    evaluate();
  agree();
  if (checkpoints_ && agreed_.stop_signal != 0 && outcome_.steps > 0 && saved_at_ != outcome_.steps)
    save_checkpoint();  // it came meanwhile
  if (checkpoints_) checkpoints_->finish();
  outcome_.stopped_by_signal = agreed_.stop_signal;
}

void Trainer::pause() {
  batches_->pause();
  synchronize(plan_.device);
  deliver(async_reader_.flush());
  paused_ = true;
}

void Trainer::step() {
  if (std::exchange(paused_, false)) boundary_ = Clock::now();
  if (checkpoints_) checkpoints_->check();
  const BackendGuard settings(plan_.backend);
  const auto observer = observe();
  const int64_t step = outcome_.steps + 1;
  const double learning_rate = schedule_.learning_rate(step);
  optimizer_->set_learning_rate(learning_rate);

  std::optional<Taken> taken;
  while (!taken) taken = run_micro_batches(step);  // again where memory ran out: without recordings, then smaller
  listener_.at("updating the weights", outcome_.steps);
  grad_norm_ = runner_->update_step(body_);

  taken->device_time->end.record(Stream::current(plan_.device));
  outcome_.steps = step;
  outcome_.samples += taken->samples;
  ++steps_here_;
  taken->record.set(Metric::learning_rate, learning_rate);
  taken->record.set_position(step, outcome_.samples, taken->samples, plan_.data.samples());
  after_step(std::move(taken->record), observer != nullptr);
}

/// Forward and backward of all micro-batches of a step; nothing if memory ran out on the way, and everything is as
/// before.
std::optional<Trainer::Taken> Trainer::run_micro_batches(int64_t step) {
  guard_->begin(step, outcome_.samples);
  Taken taken{.record = PendingRecord(boundary_), .device_time = std::make_shared<EventSpan>(plan_.device)};
  taken.record.add(Metric::device_ms, taken.device_time);
  const auto stream = Stream::current(plan_.device);
  try {
    for (bool last = false; !last;) {
      listener_.at("waiting for data", outcome_.steps);
      const Batch batch = batches_->next();
      if (batch.is_first) taken.device_time->start.record(stream);  // waiting for data is not device time
      guard_->add_samples(batch.sample_ids);
      listener_.at("forward and backward", outcome_.steps);
      for (const Batch& micro : cut(batch, outcome_.micro_split, fewest_at_once())) {
        outcome_.observations.largest_micro_batch = std::max(outcome_.observations.largest_micro_batch, micro.items);
        taken.record.add(Metric::loss, runner_->micro_step(body_, micro));
      }
      taken.samples = batch.step_items;
      last = batch.is_last;
    }
  } catch (const std::exception& error) {  // named recovery: out of memory
    if (!is_out_of_memory(error)) throw;
    recover_memory(error);
    return std::nullopt;
  }
  return taken;
}

/// Forward and backward of one micro-batch. Like update_step(), decides nothing from values on the device, so it can be
/// recorded once and replayed.
at::Tensor Trainer::micro_step(const Batch& micro) {
  const auto scope = parameters_->accumulate(micro.is_last);  // only the last micro-batch communicates
  at::Tensor loss;
  {
    const auto autocast = precision_->autocast();
    loss = task_->loss(*model_, micro.get("input"), micro.get("target"), training_).loss *
           micro.weight;  // a mean over the step however it is cut
  }
  precision_->backward(loss);
  guard_->watch(loss);
  return loss.detach();
}

at::Tensor Trainer::update_step() {
  Gradients& gradients = parameters_->finish_gradients();
  const at::Tensor overflow = precision_->unscale(gradients);          // stays on the device
  const at::Tensor skip_update = guard_->decide(overflow, gradients);  // 1: nothing below may be written
  const at::Tensor norm = clip(gradients, plan_.train.max_grad_norm);
  optimizer_->step(gradients, skip_update);
  precision_->update(overflow, guard_->flag());
  average_->update(*parameters_, skip_update);
  parameters_->updated();
  guard_->settle_buffers();
  gradient_bytes_ = parameters_->gradient_bytes();
  gradients.clear();
  return norm;
}

void Trainer::after_step(PendingRecord record, bool observed) {
  const auto stats = batches_->take_stats();
  if (observed) observe_input(stats);
  runner_->report(outcome_.observations);
  // Of the whole run: an epoch may end much later than the observed step.
  outcome_.observations.loader_threads = stats.threads;
  outcome_.observations.loader_starts = stats.thread_starts;
  record.set(Metric::data_wait_ms, stats.data_wait_ms);
  if (stats.copy_ms) record.set(Metric::copy_ms, *stats.copy_ms);
  if (grad_norm_.defined()) record.add(Metric::grad_norm, grad_norm_);
  if (const auto scale = precision_->loss_scale(); scale.defined()) record.add(Metric::loss_scale, scale);
  if (guard_->flag().defined()) record.add(Metric::nonfinite, guard_->flag());
  record.set_memory(plan_.device);
  add_communication(record);
  const int64_t step = outcome_.steps;
  const bool evaluates = evaluation_due();
  const bool saves = checkpoints_ && (agreed_.save || checkpoints_->due(step));
  if (evaluates || saves)
    synchronize(plan_.device);  // both would wait for this work all the same; here it counts as the step's
  record.finish();
  async_reader_.submit(std::move(record));
  boundary_ = Clock::now();
  // The first step is waited for once: its end is a number of the summary. What is evaluated or saved must be known to
  // be sound.
  deliver(steps_here_ == 1 || evaluates || saves ? async_reader_.flush() : async_reader_.poll());
  if (!outcome_.time_to_first_step_s) outcome_.time_to_first_step_s = seconds_since(started_);
  if (outcome_.steps != step) return agree();  // taken back
  if (evaluates) evaluate();
  if (saves) save_checkpoint();
  outcome_.wall_s = wall_s_before_ + seconds_since(started_);
  agree();
}

bool Trainer::finished() const {
  return (plan_.steps && outcome_.steps >= *plan_.steps) || agreed_.stop_signal != 0 || agreed_.out_of_time;
}

/// What each rank sees for itself becomes what all of them do: the first rank's signal, anybody's wish for a
/// checkpoint, rank 0's clock.
void Trainer::agree() {
  const bool late = plan_.train.max_time && outcome_.steps > 0 &&
                    wall_s_before_ + seconds_since(started_) >= plan_.train.max_time->seconds;
  const std::array<double, 3> mine{static_cast<double>(stop_signal_.load()),
                                   checkpoints_ && checkpoints_->requested() ? 1.0 : 0.0, late ? 1.0 : 0.0};
  const auto all = communicator_->gather(mine);
  agreed_ = {.stop_signal = 0, .save = false, .out_of_time = all[2] != 0};
  for (size_t at = 0; at < all.size(); at += mine.size()) {
    if (agreed_.stop_signal == 0) agreed_.stop_signal = static_cast<int>(all[at]);
    agreed_.save |= all[at + 1] != 0;
  }
}

bool Trainer::must_stop() {
  agree();
  return agreed_.stop_signal != 0;
}

/// What batch-norm kept of its batches is rank 0's, as in torch's DistributedDataParallel; needed where it is used or
/// kept.
void Trainer::share_buffers() {
  if (communicator_->ranks() == 1) return;
  for (const auto& [name, buffer] : model_->buffers()) communicator_->broadcast(buffer, 0)->wait();
  communicator_->take_traffic();  // no step's
}

void Trainer::add_communication(PendingRecord& record) {
  record.set(Metric::parameters_mib, mib(parameters_->parameter_bytes()));
  record.set(Metric::gradients_mib, mib(gradient_bytes_));
  record.set(Metric::optimizer_mib, mib(optimizer_->state_bytes()));
  if (communicator_->ranks() == 1) return;
  Traffic traffic = communicator_->take_traffic();
  if (outcome_.observations.step == outcome_.steps)
    outcome_.observations.sent_bytes = traffic.wire_bytes(communicator_->ranks());
  constexpr Metric kMetrics[kCollectiveCount] = {Metric::all_reduce_mib, Metric::reduce_scatter_mib,
                                                 Metric::all_gather_mib, Metric::broadcast_mib};
  for (size_t i = 0; i < kCollectiveCount; ++i) record.set(kMetrics[i], mib(traffic.bytes[i]));
  record.set(Metric::comm_exposed_ms, traffic.waited_ms);
  for (auto& stall : traffic.stalls) record.add(Metric::comm_exposed_ms, std::move(stall));
}

/// The loss is a sum over the ranks' shares of the step's mean; everything else is rank 0's, and what may differ is
/// there for each.
StepRecord Trainer::over_ranks(const StepRecord& row) {
  if (communicator_->ranks() == 1) return row;
  const auto number = [&](Metric metric) { return row[metric].value_or(0); };
  const std::array<double, 6> mine{number(Metric::loss),         number(Metric::grad_norm),
                                   number(Metric::nonfinite),    number(Metric::step_ms),
                                   number(Metric::data_wait_ms), number(Metric::comm_exposed_ms)};
  const auto all = communicator_->gather(mine);
  StepRecord merged = row;
  merged[Metric::loss] = 0;
  for (size_t at = 0; at < all.size(); at += mine.size()) {
    // As float, in the ranks' order: what one rank would have added up in its micro-batches.
    merged[Metric::loss] = static_cast<float>(*merged[Metric::loss]) + static_cast<float>(all[at]);
    if (merged[Metric::grad_norm]) merged[Metric::grad_norm] = all[1];
    if (merged[Metric::nonfinite]) merged[Metric::nonfinite] = std::max(*merged[Metric::nonfinite], all[at + 2]);
    merged.ranks.push_back({.step_ms = all[at + 3], .data_wait_ms = all[at + 4], .comm_exposed_ms = all[at + 5]});
  }
  return merged;
}

bool Trainer::is_finite(const StepRecord& row) const {
  if (row[Metric::nonfinite].value_or(0) != 0 || !std::isfinite(row[Metric::loss].value_or(0))) return false;
  // With a loss scale an overflow is expected now and then, and the scaler's business.
  return row[Metric::loss_scale] || std::isfinite(row[Metric::grad_norm].value_or(0));
}

void Trainer::deliver(const std::vector<StepRecord>& rows) {
  for (const StepRecord& own : rows) {
    const StepRecord row = over_ranks(own);
    if (!is_finite(row)) return handle_nonfinite(row);  // the rows behind it are of steps that wrote nothing
    if (replayed_step_ == row.step())
      throw UserError(fmt::format("suspected hardware fault: the step was not finite, and is when it is repeated from "
                                  "the same state with the same samples; "
                                  "the newest checkpoint is from before it, go on elsewhere: {}, on {} of {}",
                                  numbers_of(row), plan_.device.str(), host_name()),
                      ExitCode::hardware);
    listener_.step_done(row);
  }
}

/// What train.on_nonfinite says. Only with skip or rerun is the state that of the moment before the step; then it goes
/// on from there.
void Trainer::handle_nonfinite(const StepRecord& row) {
  const OnNonfinite policy = plan_.train.on_nonfinite;
  const bool again = replayed_step_ == row.step();
  const bool gradients = std::isfinite(*row[Metric::loss]);
  const bool budget_left = outcome_.skipped_steps < plan_.train.max_skipped_steps;
  const std::string what =
      fmt::format("{} not finite: {}", gradients ? "the gradients are" : "loss is", numbers_of(row));
  const StepStart *start = guard_->start_of(row.step()), *before = guard_->start_of(row.step() - 1);
  NonfiniteStep event{.step = row.step(),
                      .epoch = (row.step() - 1) / plan_.data.schedule().steps_per_epoch(),
                      .loss = row[Metric::loss],
                      .grad_norm = row[Metric::grad_norm],
                      .sample_ids = start ? start->sample_ids : std::vector<int64_t>(),
                      .sample_ids_before = {},
                      .action = ""};
  // Nobody looked at the gradients: what spoilt this loss may have been the update before it.
  if (policy == OnNonfinite::abort && before) event.sample_ids_before = before->sample_ids;
  const auto tell = [&](std::string action) {
    if (!again) listener_.step_done(row);
    event.action = std::move(action);
    listener_.not_finite(event);
  };
  if (policy == OnNonfinite::skip && budget_left) {
    tell("the step was left out");
    ++outcome_.skipped_steps;
    return rewind_to(row.step());
  }
  if (policy == OnNonfinite::rerun && !again) {
    tell("the step is repeated");
    replayed_step_ = row.step();
    return rewind_to(row.step() - 1);
  }
  tell("the run ends");
  if (again)
    throw UserError(fmt::format("{}; it is so again when repeated, which speaks for data or recipe and against a "
                                "hardware fault: look at its samples, lower "
                                "optimizer.lr or warm it up",
                                what),
                    ExitCode::diverged);
  if (policy == OnNonfinite::skip)
    throw UserError(fmt::format("{}; train.max_skipped_steps were left out already: {}", what, outcome_.skipped_steps),
                    ExitCode::diverged);
  throw UserError(
      fmt::format("{}; lower optimizer.lr, warm it up, or look at the data of this step and the one before", what),
      ExitCode::diverged);
}

/// The state on the device is that after `step` already; here the host follows.
void Trainer::rewind_to(int64_t step) {
  async_reader_.flush();  // of steps that will be taken again
  if (const StepStart* next = guard_->start_of(step + 1)) outcome_.samples = next->samples;
  guard_->rewind_to(step + 1);
  outcome_.steps = step;
  open_batches();
  boundary_ = Clock::now();
}

/// The variance of one value is 0 ÷ 0.
int64_t Trainer::fewest_at_once() const { return model_->buffers().empty() ? 1 : 2; }

void Trainer::recover_memory(const std::exception& cause) {
  const int64_t pieces = outcome_.micro_split, batch_size = plan_.data.config.batch_size;
  const auto largest = [&](int64_t split) { return (batch_size + split - 1) / split; };
  const int64_t gradients = parameters_->gradient_bytes();
  const bool recorded = runner_->forget(/*for_good=*/true);
  parameters_->clear_gradients();
  guard_->rollback();
  if (recorded) {  // what recordings held may be all that was lacking, and without them the numbers stay the same
    release_cached_memory(plan_.device);
    spdlog::warn("out of memory in step {}: it runs again, and from here on no step is recorded", outcome_.steps + 1);
    spdlog::debug("{}", cause.what());
    return open_batches();
  }
  if (communicator_->ranks() > 1 ||
      batch_size / (2 * pieces) < fewest_at_once()) {  // others wait in an exchange that cannot be taken back
    const auto figures = memory_figures(plan_.device);
    throw UserError(
        fmt::format("out of memory with {} at a time{}; MiB held: model {:.0f}, gradients {:.0f}, optimizer {:.0f}{}; "
                    "the rest is activations and batches: a "
                    "smaller model or image, 16-bit precision or more memory is needed",
                    counted(largest(pieces), "sample"),
                    fewest_at_once() > 1 ? ", the fewest that batch-norm can take" : "",
                    mib(parameters_->parameter_bytes()), mib(gradients), mib(optimizer_->state_bytes()),
                    figures ? fmt::format(", libtorch in all {:.0f} of {:.0f} taken", mib(figures->allocated),
                                          mib(figures->reserved))
                            : fmt::format(", this process at its peak {:.0f}", peak_memory_mib(plan_.device))),
        ExitCode::memory);
  }
  outcome_.micro_split = 2 * pieces;
  release_cached_memory(plan_.device);
  spdlog::warn(
      "out of memory in step {}: from here on {} at a time instead of {}, twice as often; the same global batch{}",
      outcome_.steps + 1, counted(largest(2 * pieces), "sample"), largest(pieces),
      model_->buffers().empty() ? "" : ", but batch-norm sees fewer samples at once: other numbers than without this");
  spdlog::debug("{}", cause.what());
  open_batches();
}

bool Trainer::evaluation_due() const {
  return plan_.evaluation && plan_.evaluation->every_n_steps && outcome_.steps % *plan_.evaluation->every_n_steps == 0;
}

void Trainer::evaluate() {
  const BackendGuard settings(plan_.backend);
  deliver(async_reader_.flush());
  share_buffers();
  const auto stopped = [&] {
    listener_.at("evaluating", outcome_.steps);
    return must_stop();
  };
  const auto evaluated = [&] {
    return trainopt::evaluate(*model_, *task_, *precision_, plan_.evaluation->data, plan_.device, *communicator_,
                              stopped);
  };
  std::optional<EvaluationResult> result;
  try {
    result = evaluated();
  } catch (const std::exception& error) {  // named recovery: recordings hold memory that evaluation cannot use
    if (!is_out_of_memory(error) || !runner_->forget(/*for_good=*/false)) throw;
    spdlog::warn("memory ran out in an evaluation: it runs again without the recorded steps, which are recorded anew");
    release_cached_memory(plan_.device);
    result = evaluated();
  }
  if (result) {
    outcome_.evaluation = result;
    evaluated_at_ = outcome_.steps;
    listener_.evaluated(outcome_.steps, *result);
  }
  communicator_->take_traffic();  // no step's
  boundary_ = Clock::now();
}

void Trainer::save_checkpoint() {
  listener_.at("saving a checkpoint", outcome_.steps);
  outcome_.wall_s = wall_s_before_ + seconds_since(started_);
  ArchiveWriter archive(communicator_->position());
  save(archive);
  listener_.save(archive);
  checkpoints_->save(archive, outcome_.steps);
  saved_at_ = outcome_.steps;
  communicator_->take_traffic();  // no step's
  boundary_ = Clock::now();
}

std::unique_ptr<StepObserver> Trainer::observe() {
  Observations& seen = outcome_.observations;
  const int64_t steps_to_come = plan_.steps.value_or(kObservedStep + outcome_.steps) - outcome_.steps;
  if (seen.step != 0 || (steps_here_ + 1 < kObservedStep && steps_to_come > 1)) return nullptr;
  for (const auto& gradient : parameters_->gradients()) seen.gradients_at_start += gradient.defined();
  seen.tf32_allowed = at::globalContext().allowTF32CuDNN() && at::globalContext().allowTF32CuBLAS();
  seen.cudnn_benchmark = at::globalContext().benchmarkCuDNN();
  seen.page_faults = -page_faults();
  if (const auto* allocator = installed_caching_allocator()) seen.kept_blocks_given = -allocator->figures().given_again;
  return std::make_unique<StepObserver>(seen);
}

void Trainer::observe_input(const BatchSourceStats& stats) {
  Observations& seen = outcome_.observations;
  seen.page_faults += page_faults();
  if (const auto* allocator = installed_caching_allocator()) {
    seen.kept_blocks_given += allocator->figures().given_again;
    seen.kept_bytes = allocator->figures().held_bytes;
  }
  seen.parameter_bytes = parameters_->parameter_bytes();
  seen.gradient_bytes = gradient_bytes_;
  seen.optimizer_bytes = optimizer_->state_bytes();
  seen.step = outcome_.steps;  // only now: a step that failed was not observed
  seen.bytes_delivered = stats.bytes_delivered;
  seen.resident_bytes = stats.resident_bytes;
  seen.bytes_to_device = stats.bytes_copied;
  seen.pinned_bytes_to_device = stats.pinned_bytes_copied;
  seen.copies_beside_step = stats.copies_beside_step;
  seen.loader_buffers = stats.buffers;
  if (stats.input_type) seen.input_type = type_name(*stats.input_type);
  if (stats.finished_type) seen.finished_type = type_name(*stats.finished_type);
}

void Trainer::save_model(ArchiveWriter& archive) const {
  std::vector<at::Tensor> parameters;
  for (const auto& [name, parameter] : parameters_->parameters()) parameters.push_back(parameter);
  parameters_->save(archive, "model.", parameters);
  for (const auto& [name, buffer] : model_->buffers()) archive.tensor("model." + name, buffer);
}

NamedTensors Trainer::weights() const { return parameters_->whole(*model_); }

void Trainer::save(ArchiveWriter& archive) const {
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
  archive.value("skipped_steps", outcome_.skipped_steps);
  archive.value("micro_split", outcome_.micro_split);
  archive.value("schedule_steps", plan_.schedule_steps);
  archive.list("bad_samples", to_json(bad_samples()));
  archive.value("data", to_json(plan_.data.identity()));
  archive.value("evaluation", outcome_.evaluation ? to_json(*outcome_.evaluation) : Json());
  archive.value("evaluated_at", evaluated_at_ ? Json(*evaluated_at_) : Json());
}

void Trainer::load(const ArchiveReader& archive) {
  plan_.data.require_identity(identity_from(archive.value("data")));
  ArchiveWriter expected = ArchiveWriter::of_shapes();
  save(expected);
  // A loss scale that is new starts as if the run did, one that is gone is forgotten; everything else must be there.
  const bool same_precision = archive.has_under("precision.") == expected.has_under("precision.");
  at::Tensor random_state = training_.generator->get_state();
  const std::string random = random_name(communicator_->rank());
  // A CPU's and a GPU's differ, and another number of ranks has others.
  const bool same_generator = archive.has_under(random) && archive.tensor(random).sizes() == random_state.sizes() &&
                              archive.values().value("ranks", int64_t{1}) == communicator_->ranks();
  std::vector<std::string> apart{"random."};
  if (!same_precision) apart.push_back("precision.");
  archive.require_like(expected, apart);
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
    spdlog::warn("the checkpoint was trained in another precision: {}",
                 archive.has_under("precision.") ? "its loss scale is dropped" : "the loss scale starts anew");
  average_->load(archive);
  outcome_.steps = archive.integer("step");
  if (same_generator) {
    archive.tensor(random, random_state);
    training_.generator->set_state(random_state);
  } else {
    spdlog::warn(
        "the checkpoint was trained on another kind of device or number of ranks: what the model itself draws "
        "(dropout) starts anew");
    training_.generator->set_current_seed(plan_.seed + static_cast<uint64_t>(outcome_.steps + communicator_->rank()));
  }
  outcome_.resumed_from = outcome_.steps;
  outcome_.samples = archive.integer("samples");
  if (plan_.scheduler.name != ScheduleKind::constant && archive.integer("schedule_steps") != plan_.schedule_steps)
    spdlog::warn(
        "the learning rate goes to 0 at step {} now, at {} in the checkpoint: it jumps here; scheduler.total_steps "
        "would fix it",
        plan_.schedule_steps, archive.integer("schedule_steps"));
  for (const auto& bad : archive.value("bad_samples")) bad_samples_.push_back(refused_sample_from(bad));
  outcome_.skipped_steps = archive.integer("skipped_steps");
  outcome_.micro_split = archive.integer("micro_split");
  outcome_.wall_s = wall_s_before_ = archive.value("wall_s").get<double>();
  if (const Json& evaluation = archive.value("evaluation"); !evaluation.is_null())
    outcome_.evaluation = evaluation_from(evaluation);
  if (const Json& at = archive.value("evaluated_at"); !at.is_null()) evaluated_at_ = at.get<int64_t>();
}

}  // namespace trainopt
