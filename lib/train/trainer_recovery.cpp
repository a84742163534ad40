#include "base/host_name.h"
#include "base/log.h"
#include "base/units.h"
#include "device/gpu_error.h"
#include "device/memory.h"
#include "train/observe/memory_report.h"
#include "train/trainer.h"

#include <cmath>
#include <deque>

// What the trainer does about a non-finite step, or one that ran out of memory: it returns to the state before the
// step, or ends the run and says why.

// A GPU fault ends the trainer: nothing on the GPU can be read, repeated or even freed.

namespace trainopt {
namespace {

std::string numbers_of(const StepRecord& row) {
  std::string text = fmt::format("step {}, loss {}", row.step(), *row[Metric::loss]);
  if (row[Metric::grad_norm]) text += fmt::format(", gradient norm {}", *row[Metric::grad_norm]);
  return text;
}

}  // namespace

bool Trainer::is_finite(const StepRecord& row) const {
  if (row[Metric::nonfinite].value_or(0) != 0 || !std::isfinite(row[Metric::loss].value_or(0))) return false;
  // With a loss scale, occasional overflows are expected, and the scaler handles them.
  return row[Metric::loss_scale] || std::isfinite(row[Metric::grad_norm].value_or(0));
}

void Trainer::deliver(const std::vector<StepRecord>& rows) {
  for (const StepRecord& own : rows) {
    const StepRecord row = ranks_.over_ranks(own);
    if (!is_finite(row)) return handle_nonfinite(row);  // later rows are of steps that wrote nothing
    if (replayed_step_ == row.step())
      throw UserError(fmt::format("suspected hardware fault: the step was non-finite, but finite when repeated from "
                                  "the same state with the same samples; resume on another machine from the newest "
                                  "checkpoint, which was saved before it: {}, on {} of {}",
                                  numbers_of(row), plan_.device.str(), host_name()),
                      ExitCode::hardware);
    listener_.step_done(row);
  }
}

/// Applies train.on_nonfinite. With skip and rerun the device has the state from before the step, and training
/// continues from it.
void Trainer::handle_nonfinite(const StepRecord& row) {
  const OnNonfinite policy = plan_.train.on_nonfinite;
  const bool again = replayed_step_ == row.step();
  const bool gradients = std::isfinite(*row[Metric::loss]);
  const bool budget_left = outcome_.skipped_steps < plan_.train.max_skipped_steps;
  const std::string began = profiler_->where_nonfinite_began(row.step());
  const std::string what = fmt::format("{} not finite: {}{}", gradients ? "the gradients are" : "loss is",
                                       numbers_of(row), began.empty() ? "" : "; " + began);
  const StepStart *start = guard_->start_of(row.step()), *before = guard_->start_of(row.step() - 1);
  NonfiniteStep event{.step = row.step(),
                      .epoch = (row.step() - 1) / plan_.data.schedule().steps_per_epoch(),
                      .loss = row[Metric::loss],
                      .grad_norm = row[Metric::grad_norm],
                      .sample_ids = ranks_.over_ranks(start ? start->sample_ids : std::vector<int64_t>()),
                      .sample_ids_before = {},
                      .began = began,
                      .action = ""};
  // The previous step's update may have caused this loss.
  if (policy == OnNonfinite::abort && before) event.sample_ids_before = ranks_.over_ranks(before->sample_ids);
  const auto tell = [&](std::string action) {
    if (!again) listener_.step_done(row);
    event.action = std::move(action);
    listener_.not_finite(event);
  };
  if (policy == OnNonfinite::skip && budget_left) {
    tell("the step was skipped");
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
    throw UserError(fmt::format("{}; reproduced when repeated, so suspect data or recipe, not hardware: inspect its "
                                "samples, lower optimizer.lr, or add warm-up",
                                what),
                    ExitCode::diverged);
  if (policy == OnNonfinite::skip)
    throw UserError(
        fmt::format("{}; train.max_skipped_steps steps were already skipped: {}", what, outcome_.skipped_steps),
        ExitCode::diverged);
  throw UserError(
      fmt::format("{}; lower optimizer.lr, add warm-up, or inspect the data of this step and the one before", what),
      ExitCode::diverged);
}

/// The device already has the state after `step`; this resets the host's state to match.
void Trainer::rewind_to(int64_t step) {
  async_reader_->flush();  // discards records of steps that will be repeated
  if (const StepStart* next = guard_->start_of(step + 1)) outcome_.samples = next->samples;
  guard_->rewind_to(step + 1);
  outcome_.steps = step;
  open_batches();
  ranks_.drop_traffic();
  boundary_ = Clock::now();
}

/// With batch-norm at least 2 samples: the variance of a single value is 0 ÷ 0.
int64_t Trainer::min_micro_batch_size() const { return model_->buffers().empty() ? 1 : 2; }

void Trainer::recover_memory(const std::exception& cause) {
  const int64_t pieces = outcome_.micro_split, batch_size = plan_.data.batch_size;
  const auto largest = [&](int64_t split) { return (batch_size + split - 1) / split; };
  const int64_t gradients = parameters_->gradient_bytes();
  memory_.file_gradients(*parameters_);
  memory_.out_of_memory(outcome_.steps + 1, plan_.device, outcome_.trace);
  const bool recorded = runner_->drop_state(/*permanently=*/true);
  parameters_->clear_gradients();
  guard_->rollback();
  if (recorded) {  // releasing recordings may free enough memory, and does not change results
    release_cached_memory(plan_.device);
    log_warning("out of memory in step {}: repeating it; from now on steps are not recorded and replayed",
                outcome_.steps + 1);
    log_debug("{}", cause.what());
    return open_batches();
  }
  if (communicator_->ranks() > 1 ||
      batch_size / (2 * pieces) <
          min_micro_batch_size()) {  // the other ranks wait in a collective that cannot be undone
    const auto stats = memory_stats(plan_.device);
    const std::string in_memory = memory_text(outcome_.trace.memory);
    throw UserError(
        fmt::format("out of memory with {} at a time{}; MiB held: model {:.0f}, gradients {:.0f}, optimizer {:.0f}{}; "
                    "the rest is activations and batches{}; use a "
                    "smaller model or samples, 16-bit precision or more memory",
                    counted(largest(pieces), "sample"),
                    min_micro_batch_size() > 1 ? ", the minimum for batch-norm" : "",
                    mib(parameters_->parameter_bytes()), mib(gradients), mib(optimizer_->state_bytes()),
                    stats && !plan_.device.is_cpu()
                        ? fmt::format(", libtorch in total {:.0f} of {:.0f} reserved", mib(stats->allocated),
                                      mib(stats->reserved))
                        : fmt::format(", peak of this process {:.0f}", peak_memory_mib(plan_.device)),
                    in_memory.empty() ? "" : fmt::format(" ({})", in_memory)),
        ExitCode::memory);
  }
  outcome_.micro_split = 2 * pieces;
  release_cached_memory(plan_.device);
  log_warning(
      "out of memory in step {}: from now on {} at a time instead of {}, in twice as many micro-batches; the global "
      "batch stays the same{}",
      outcome_.steps + 1, counted(largest(2 * pieces), "sample"), largest(pieces),
      model_->buffers().empty() ? "" : ", but batch-norm sees fewer samples at once, so results differ");
  log_debug("{}", cause.what());
  open_batches();
}

std::optional<EvaluationResult> Trainer::evaluate_within_memory(
    const std::function<std::optional<EvaluationResult>()>& evaluated) {
  try {
    return evaluated();
  } catch (const std::exception& error) {  // named recovery: release memory held by recordings
    if (!is_out_of_memory(error) || !runner_->drop_state(/*permanently=*/false)) throw;
    log_warning(
        "out of memory in an evaluation: repeating it without the recorded steps, which will be recorded again");
    release_cached_memory(plan_.device);
    return evaluated();
  }
}

namespace {

/// Keeps a value to the end of the process, without running its destructor.
template <class T>
void never_destroy(T value) {
  static auto& kept = *new std::deque<T>;
  kept.push_back(std::move(value));
}

}  // namespace

void Trainer::at(const char* stage) {
  stage_ = stage;
  listener_.at(stage, outcome_.steps);
}

void Trainer::or_gpu_lost(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {  // named recovery: none is possible, but the message says where it happened
    const auto fault = gpu_fault(error);
    gpu_lost_ = gpu_lost_ || fault;
    if (!fault || dynamic_cast<const GpuLost*>(&error)) throw;
    throw GpuLost(*fault,
                  fmt::format("{}, {}, {}", position(), stage_,
                              gpu_label(plan_.device, plan_.machine.gpu, plan_.machine.gpu_uuid)),
                  saved_at_);
  }
}

void Trainer::during(const char* stage, const std::function<void()>& work) {
  at(stage);
  or_gpu_lost(work);
}

std::string Trainer::position() const {
  if (in_step_) return fmt::format("in step {}", outcome_.steps + 1);
  return outcome_.steps == 0 ? "before the first step" : fmt::format("after step {}", outcome_.steps);
}

/// After a GPU fault freeing GPU memory, events or page-locked memory throws, which libtorch's destructors must not.
Trainer::~Trainer() {
  if (!gpu_lost_) return;
  never_destroy(std::move(batches_));
  never_destroy(std::move(guard_));
  never_destroy(std::move(average_));
  never_destroy(std::move(runner_));
  never_destroy(std::move(optimizer_));
  never_destroy(std::move(precision_));
  never_destroy(std::move(task_));
  never_destroy(std::move(parameters_));
  never_destroy(std::move(model_));
  never_destroy(std::move(async_reader_));
  never_destroy(std::move(training_));
  never_destroy(std::move(grad_norm_));
  never_destroy(std::move(communicator_));
  never_destroy(std::move(plan_));  // may hold a data set on the device
}

}  // namespace trainopt
