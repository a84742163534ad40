#include "train/trainer.h"

#include "device/device.h"
#include "device/host_allocator.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <sys/resource.h>

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

constexpr int64_t kObservedStep = 2;   // the first is full of one-off work

/// Draws of the model itself (dropout), apart from every other trainer's in this process.
at::Generator model_generator(at::Device device, uint64_t seed) {
  if (device.is_cpu()) return at::detail::createCPUGenerator(seed);
  at::Generator generator = at::globalContext().getAcceleratorHooksInterface(device.type()).getNewGenerator(device.index());
  generator.set_current_seed(seed);
  return generator;
}

int64_t page_faults() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

void check_finite(const Row& row, Metric metric) {
  if (std::isfinite(row[metric].value_or(0.0))) return;
  throw UserError(fmt::format("{} is not finite; lower optimizer.lr, warm it up, or look at the data of this step: step {}, {}", info(metric).name, row.step(),
                              *row[metric]),
                  ExitCode::diverged);
}

}  // namespace

Trainer::Trainer(Plan plan, std::filesystem::path run_dir, RunListener& listener, const std::atomic<int>& stop_signal)
    : plan_(std::move(plan)), listener_(listener), stop_signal_(stop_signal),
      schedule_(plan_.scheduler, base_learning_rate(plan_.optimizer_config), plan_.schedule_steps), late_(plan_.device) {
  model_ = plan_.model.build(plan_.device, plan_.seed);
  BuildContext context{plan_, plan_.device, std::move(run_dir), model_.get(), nullptr};
  parameters_ = plan_.parameters.build(context);
  context.parameters = parameters_.get();
  task_ = plan_.task.build(context);
  precision_ = plan_.precision.build(context);
  optimizer_ = plan_.optimizer.build(context);
  runner_ = plan_.runner.build(context);
  average_ = plan_.average.build(context);
  batches_ = plan_.data.open(plan_.device, plan_.steps);
  training_ = {.training = true, .generator = model_generator(plan_.device, plan_.seed)};
  body_ = {.micro_step = [this](const Batch& micro) { return micro_step(micro); }, .update_step = [this] { update_step(); }};
  outcome_.observations.parameters = static_cast<int64_t>(parameters_->parameters().size());
  started_ = boundary_ = Clock::now();
}

void Trainer::run() {
  started_ = boundary_ = Clock::now();
  while (!finished()) step();
  deliver(late_.flush());
  outcome_.wall_s = seconds_since(started_);
  if (plan_.evaluation && plan_.evaluation->at_end && stop_signal_ == 0 && evaluated_at_ != outcome_.steps) evaluate();
  outcome_.stopped_by_signal = stop_signal_;
}

void Trainer::pause() {
  batches_->pause();
  synchronize(plan_.device);
  deliver(late_.flush());
  paused_ = true;
}

void Trainer::step() {
  if (std::exchange(paused_, false)) boundary_ = Clock::now();
  const BackendGuard settings(plan_.backend);
  const auto observer = observe();
  Record record(boundary_);
  const auto device_time = std::make_shared<EventSpan>(plan_.device);
  const auto stream = Stream::current(plan_.device);

  const int64_t step = outcome_.steps + 1;
  const double learning_rate = schedule_.learning_rate(step);
  optimizer_->set_learning_rate(learning_rate);
  int64_t step_samples = 0;
  for (bool last = false; !last;) {
    const Batch micro = batches_->next();
    if (micro.is_first) device_time->start.record(stream);   // waiting for data is not device time
    outcome_.observations.largest_micro_batch = std::max(outcome_.observations.largest_micro_batch, micro.items);
    record.add(Metric::loss, runner_->micro_step(body_, micro));
    step_samples = micro.step_items;
    last = micro.is_last;
  }
  runner_->update_step(body_);

  device_time->end.record(stream);
  outcome_.steps = step;
  outcome_.samples += step_samples;
  record.set(Metric::learning_rate, learning_rate);
  record.add(Metric::device_ms, device_time);
  record.set_position(step, outcome_.samples, step_samples, plan_.data.samples());
  after_step(std::move(record), observer != nullptr);
}

/// Forward and backward of one micro-batch. Like update_step(), decides nothing from values on the device, so it can be recorded once and replayed.
at::Tensor Trainer::micro_step(const Batch& micro) {
  const auto scope = parameters_->accumulate(micro.is_last);   // only the last micro-batch communicates
  at::Tensor loss;
  {
    const auto autocast = precision_->autocast();
    loss = task_->loss(*model_, micro.get("input"), micro.get("target"), training_).loss * micro.weight;   // a mean over the step however it is cut
  }
  precision_->backward(loss);
  return loss.detach();
}

void Trainer::update_step() {
  parameters_->finish_gradients();
  const at::Tensor overflow = precision_->unscale(*parameters_);   // stays on the device
  grad_norm_ = parameters_->clip(plan_.train.max_grad_norm);
  optimizer_->step(*parameters_, overflow);                        // writes nothing where overflow is 1
  precision_->update(overflow);
  average_->update(*parameters_);
  parameters_->clear_gradients();
}

void Trainer::after_step(Record record, bool observed) {
  const auto stats = batches_->take_stats();
  if (observed) observe_input(stats);
  // Of the whole run: an epoch may end much later than the observed step.
  outcome_.observations.loader_threads = stats.threads;
  outcome_.observations.loader_starts = stats.thread_starts;
  record.set(Metric::data_wait_ms, stats.data_wait_ms);
  if (stats.copy_ms) record.set(Metric::copy_ms, *stats.copy_ms);
  if (grad_norm_.defined()) record.add(Metric::grad_norm, grad_norm_);
  if (const auto scale = precision_->loss_scale(); scale.defined()) record.add(Metric::loss_scale, scale);
  record.set_memory(plan_.device);
  const bool evaluates = plan_.evaluation && plan_.evaluation->every_n_steps && outcome_.steps % *plan_.evaluation->every_n_steps == 0;
  if (evaluates) synchronize(plan_.device);   // evaluation would wait for this work all the same; here it counts as the step's
  record.finish();
  late_.submit(std::move(record));
  boundary_ = Clock::now();
  // The first step is waited for once: its end is a number of the summary.
  deliver(outcome_.steps == 1 ? late_.flush() : late_.poll());
  if (!outcome_.time_to_first_step_s) outcome_.time_to_first_step_s = seconds_since(started_);
  if (evaluates) evaluate();
  outcome_.wall_s = seconds_since(started_);
}

bool Trainer::finished() const {
  if ((plan_.steps && outcome_.steps >= *plan_.steps) || stop_signal_ != 0) return true;
  return plan_.train.max_time && outcome_.steps > 0 && seconds_since(started_) >= plan_.train.max_time->seconds;
}

void Trainer::deliver(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    listener_.step_done(row);
    check_finite(row, Metric::loss);
    // With a loss scale an overflow is expected now and then, and the scaler's business.
    if (!row[Metric::loss_scale]) check_finite(row, Metric::grad_norm);
  }
}

void Trainer::evaluate() {
  const BackendGuard settings(plan_.backend);
  deliver(late_.flush());
  if (const auto result = trainopt::evaluate(*model_, *task_, *precision_, plan_.evaluation->data, plan_.device, stop_signal_)) {
    outcome_.evaluation = result;
    evaluated_at_ = outcome_.steps;
    listener_.evaluated(outcome_.steps, *result);
  }
  boundary_ = Clock::now();
}

std::unique_ptr<StepObserver> Trainer::observe() {
  Observations& seen = outcome_.observations;
  if (outcome_.steps + 1 != std::min(kObservedStep, plan_.steps.value_or(kObservedStep))) return nullptr;
  for (const auto& gradient : parameters_->gradients()) seen.gradients_at_start += gradient.defined();
  seen.tf32_allowed = at::globalContext().allowTF32CuDNN() && at::globalContext().allowTF32CuBLAS();
  seen.cudnn_benchmark = at::globalContext().benchmarkCuDNN();
  seen.page_faults = -page_faults();
  if (const auto* allocator = installed_keeping_allocator()) seen.kept_blocks_given = -allocator->figures().given_again;
  return std::make_unique<StepObserver>(seen);
}

void Trainer::observe_input(const BatchSourceStats& stats) {
  Observations& seen = outcome_.observations;
  seen.page_faults += page_faults();
  if (const auto* allocator = installed_keeping_allocator()) {
    seen.kept_blocks_given += allocator->figures().given_again;
    seen.kept_bytes = allocator->figures().held_bytes;
  }
  seen.step = outcome_.steps;   // only now: a step that failed was not observed
  seen.bytes_delivered = stats.bytes_delivered;
  seen.bytes_to_device = stats.bytes_copied;
  seen.pinned_bytes_to_device = stats.pinned_bytes_copied;
  seen.copies_beside_step = stats.copies_beside_step;
  seen.loader_buffers = stats.buffers;
  if (stats.input_type) seen.input_type = type_name(*stats.input_type);
}

void Trainer::save(ArchiveWriter& archive) const {
  for (const auto& [name, tensor] : model_->state()) archive.tensor("model." + name, tensor);
  optimizer_->save(archive);
  precision_->save(archive);
  average_->save(archive);
  archive.value("step", outcome_.steps);
  archive.value("samples", outcome_.samples);
  archive.value("seed", plan_.seed);
}

}  // namespace trainopt
