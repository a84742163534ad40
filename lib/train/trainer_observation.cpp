#include "train/trainer.h"

#include "device/caching_allocator.h"

#include <ATen/ATen.h>

#include <sys/resource.h>

// What the trainer adds to the observed step.
namespace trainopt {
namespace {

constexpr int64_t kObservedStep = 2;  // the first is full of one-off work

int64_t page_faults() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

}  // namespace

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

}  // namespace trainopt
