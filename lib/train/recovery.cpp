#include "train/recovery.h"

#include "base/host_name.h"
#include "base/log.h"
#include "base/units.h"
#include "comm/communicator.h"
#include "device/gpu_error.h"
#include "device/memory.h"
#include "train/observe/memory_report.h"
#include "train/plan.h"
#include "train/ranks.h"
#include "train/step.h"
#include "train/step_guard.h"
#include "train/watch.h"

#include <cmath>

namespace trainopt {
namespace {

std::string numbers_of(const StepRecord& row) {
  std::string text = fmt::format("step {}, loss {}", row.step(), *row[Metric::loss]);
  if (row[Metric::grad_norm]) text += fmt::format(", gradient norm {}", *row[Metric::grad_norm]);
  return text;
}

bool is_finite(const StepRecord& row) {
  if (row[Metric::nonfinite].value_or(0) != 0 || !std::isfinite(row[Metric::loss].value_or(0))) return false;
  // With a loss scale, occasional overflows are expected, and the scaler handles them.
  return row[Metric::loss_scale] || std::isfinite(row[Metric::grad_norm].value_or(0));
}

/// The samples of the largest of `pieces` parts of the loader's batch.
int64_t largest_piece(const Plan& plan, int64_t pieces) { return (plan.data.batch_size + pieces - 1) / pieces; }

}  // namespace

void Recovery::deliver(const std::vector<StepRecord>& rows) {
  for (const StepRecord& own : rows) {
    const StepRecord row = parts_.ranks.over_ranks(own);
    if (!is_finite(row)) return handle_nonfinite(row);  // later rows are of steps that wrote nothing
    if (repeated_step_ == row.step())
      throw UserError(fmt::format("suspected hardware fault: the step was non-finite, but finite when repeated from "
                                  "the same state with the same samples; resume on another machine from the newest "
                                  "checkpoint, which was saved before it: {}, on {} of {}",
                                  numbers_of(row), parts_.plan.device.str(), host_name()),
                      ExitCode::hardware);
    parts_.listener.step_done(row);
  }
}

/// Applies train.on_nonfinite. With skip and rerun the device has the state from before the step, and training
/// continues from it.
void Recovery::handle_nonfinite(const StepRecord& row) {
  const OnNonfinite policy = parts_.plan.train.on_nonfinite;
  const bool again = repeated_step_ == row.step();
  const bool gradients = std::isfinite(*row[Metric::loss]);
  const bool budget_left = parts_.outcome.skipped_steps < parts_.plan.train.max_skipped_steps;
  const std::string began = parts_.watch.where_nonfinite_began(row.step());
  const std::string what = fmt::format("{} not finite: {}{}", gradients ? "the gradients are" : "loss is",
                                       numbers_of(row), began.empty() ? "" : "; " + began);
  const StepStart *start = parts_.step.guard().start_of(row.step()),
                  *before = parts_.step.guard().start_of(row.step() - 1);
  NonfiniteStep event{.step = row.step(),
                      .epoch = (row.step() - 1) / parts_.plan.data.schedule().steps_per_epoch(),
                      .loss = row[Metric::loss],
                      .grad_norm = row[Metric::grad_norm],
                      .sample_ids = parts_.ranks.over_ranks(start ? start->sample_ids : std::vector<int64_t>()),
                      .sample_ids_before = {},
                      .began = began,
                      .action = ""};
  // The previous step's update may have caused this loss.
  if (policy == OnNonfinite::abort && before) event.sample_ids_before = parts_.ranks.over_ranks(before->sample_ids);
  const auto tell = [&](std::string action) {
    if (!again) parts_.listener.step_done(row);
    event.action = std::move(action);
    parts_.listener.not_finite(event);
  };
  if (policy == OnNonfinite::skip && budget_left) {
    tell("the step was skipped");
    ++parts_.outcome.skipped_steps;
    return rewind_to(row.step());
  }
  if (policy == OnNonfinite::rerun && !again) {
    tell("the step is repeated");
    repeated_step_ = row.step();
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
        fmt::format("{}; train.max_skipped_steps steps were already skipped: {}", what, parts_.outcome.skipped_steps),
        ExitCode::diverged);
  throw UserError(
      fmt::format("{}; lower optimizer.lr, add warm-up, or inspect the data of this step and the one before", what),
      ExitCode::diverged);
}

/// The device already has the state after `step`; this resets the host's state to match.
void Recovery::rewind_to(int64_t step) {
  if (const StepStart* next = parts_.step.guard().start_of(step + 1)) parts_.outcome.samples = next->samples;
  parts_.step.guard().rewind_to(step + 1);
  parts_.outcome.steps = step;
  parts_.start_again();
}

void Recovery::retry_if_out_of_memory(const std::function<void()>& work) {
  for (;;) {
    parts_.step.guard().begin(parts_.outcome.steps + 1, parts_.outcome.samples);
    try {
      return work();
    } catch (const std::exception& error) {  // named recovery: out of memory
      if (!is_out_of_memory(error)) throw;
      undo_for_memory(error);
    }
  }
}

void Recovery::undo_for_memory(const std::exception& cause) {
  Step& step = parts_.step;
  const int64_t gradient_bytes = step.parameters().gradient_bytes();
  parts_.watch.out_of_memory();
  const bool recorded = step.runner().drop_state(/*permanently=*/true);
  step.parameters().clear_gradients();
  step.guard().rollback();
  if (recorded) {  // releasing recordings may free enough memory, and does not change results
    log_warning("out of memory in step {}: repeating it; from now on steps are not recorded and replayed",
                parts_.outcome.steps + 1);
  } else {
    const int64_t pieces = parts_.outcome.micro_split;
    if (step.context().communicator->ranks() > 1 ||  // the others wait in a collective that cannot be undone
        parts_.plan.data.batch_size / (2 * pieces) < step.min_micro_batch_size())
      throw_out_of_memory(gradient_bytes);
    parts_.outcome.micro_split = 2 * pieces;
    log_warning(
        "out of memory in step {}: from now on {} at a time instead of {}, in twice as many micro-batches; the global "
        "batch stays the same{}",
        parts_.outcome.steps + 1, counted(largest_piece(parts_.plan, 2 * pieces), "sample"),
        largest_piece(parts_.plan, pieces),
        step.model().buffers().empty() ? "" : ", but batch-norm sees fewer samples at once, so results differ");
  }
  log_debug("{}", cause.what());
  release_cached_memory(parts_.plan.device);
  parts_.reopen_data();
}

void Recovery::throw_out_of_memory(int64_t gradient_bytes) const {
  const Step& step = parts_.step;
  const auto stats = memory_stats(parts_.plan.device);
  const std::string in_memory = memory_text(parts_.outcome.trace.memory);
  throw UserError(
      fmt::format("out of memory with {} at a time{}; MiB held: model {:.0f}, gradients {:.0f}, optimizer {:.0f}{}; "
                  "the rest is activations and batches{}; use a "
                  "smaller model or samples, 16-bit precision or more memory",
                  counted(largest_piece(parts_.plan, parts_.outcome.micro_split), "sample"),
                  step.min_micro_batch_size() > 1 ? ", the minimum for batch-norm" : "",
                  mib(step.parameters().parameter_bytes()), mib(gradient_bytes), mib(step.optimizer().state_bytes()),
                  stats && !parts_.plan.device.is_cpu()
                      ? fmt::format(", libtorch in total {:.0f} of {:.0f} reserved", mib(stats->allocated),
                                    mib(stats->reserved))
                      : fmt::format(", peak of this process {:.0f}", peak_memory_mib(parts_.plan.device)),
                  in_memory.empty() ? "" : fmt::format(" ({})", in_memory)),
      ExitCode::memory);
}

Recovery::Evaluation Recovery::evaluate_with_retry(const std::function<Evaluation()>& evaluate) {
  try {
    return evaluate();
  } catch (const std::exception& error) {  // named recovery: release memory held by recordings
    if (!is_out_of_memory(error) || !parts_.step.runner().drop_state(/*permanently=*/false)) throw;
    log_warning(
        "out of memory in an evaluation: repeating it without the recorded steps, which will be recorded again");
    release_cached_memory(parts_.plan.device);
    return evaluate();
  }
}

}  // namespace trainopt
