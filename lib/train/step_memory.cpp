#include "train/step_memory.h"

#include "base/log.h"
#include "base/error.h"
#include "base/file_calls.h"
#include "device/memory.h"
#include "model/model.h"
#include "train/autograd_hooks.h"
#include "train/memory_snapshot.h"
#include "train/parameter_store.h"
#include "train/step_trace.h"

namespace trainopt {
namespace {

constexpr int64_t kStepsPerLeakSearch = 10;
constexpr int64_t kFirstSteps = 10;  ///< in which memory is still being laid out

class MemoryLabelledUnit : public WrappedUnit {
 public:
  MemoryLabelledUnit(std::unique_ptr<Unit> inner, MemoryRecorder& recorder)
      : WrappedUnit(std::move(inner)), recorder_(recorder), name_(recorder.unit(name())) {}

  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    const MemoryScope scope({.use = MemoryUse::activations, .phase = "forward", .unit = name_});
    at::Tensor output = inner_->forward(input, context);
    if (context.training && recorder_.listens())
      before_backward_of(output, [this] { recorder_.set_backward_unit(name_); });
    return output;
  }

 private:
  MemoryRecorder& recorder_;
  const std::string* name_;
};

}  // namespace

void StepMemory::attach(Model& model, std::string snapshots) {
  snapshots_ = std::move(snapshots);
  if (!recorder_) return;
  model.wrap_units(
      [&](std::unique_ptr<Unit> unit) { return std::make_unique<MemoryLabelledUnit>(std::move(unit), *recorder_); });
}

void StepMemory::begin_step(int64_t step) {
  page_faults_at_start_ = page_faults();
  if (recorder_ && recorder_->listens()) recorder_->begin_step(step);
}

void StepMemory::file_gradients(const ParameterStore& parameters) {
  if (recorder_ && recorder_->listens()) recorder_->relabel(parameters.gradients(), MemoryUse::gradients);
}

void StepMemory::end_step(int64_t step, bool observed, StepTrace& trace) {
  if (++steps_ > kFirstSteps) {
    ++trace.later_steps;
    trace.later_page_faults += page_faults() - page_faults_at_start_;
  }
  if (!recorder_ || !recorder_->listens()) return;
  if (observed) trace.memory = recorder_->peak();
  if (!whole_run_) {
    if (observed) recorder_->stop();
    return;
  }
  if (const auto spike = spikes_.add(step, recorder_->peak_by_label())) {
    log_warning("memory {}", spike->text());
    trace.memory_spikes.push_back(*spike);
  }
  if (step % kStepsPerLeakSearch == 0) find_leaks(trace);  // before a leak ends the run
}

void StepMemory::find_leaks(StepTrace& trace) {
  const bool known = !trace.memory_leaks.empty();
  trace.memory_leaks = memory_leaks(recorder_->contents());
  if (known) return;
  for (const MemoryLeak& leak : trace.memory_leaks) log_warning("memory {}", leak.text());
}

void StepMemory::out_of_memory(int64_t step, c10::Device device, StepTrace& trace) {
  if (!recorder_ || !recorder_->listens()) return;
  trace.memory = recorder_->peak();
  if (!whole_run_) return;
  const auto file = fmt::format("{}-step{}-out-of-memory.pickle", snapshots_, step);
  if (kind_of(file) != PathKind::absent) return;  // of the step's first attempt, with the largest micro-batches
  try {
    find_leaks(trace);
    write_memory_snapshot(file, device, recorder_);
    log_warning("what was in memory is in {}", file);
  } catch (const std::exception& error) {  // named recovery: running out of memory is the news
    log_warning("{}", error.what());
  }
}

void StepMemory::finish(StepTrace& trace) {
  if (recorder_ && whole_run_ && recorder_->listens()) find_leaks(trace);
}

}  // namespace trainopt
