#include "train/observe/observed_step.h"

#include "base/error.h"
#include "base/files/file_calls.h"
#include "base/log.h"
#include "device/device_allocator.h"
#include "device/memory.h"
#include "device/tensor_memory.h"
#include "device/trace_range.h"
#include "model/model.h"
#include "train/observe/autograd_hooks.h"
#include "train/observe/memory_snapshot.h"
#include "train/observe/step_trace.h"
#include "train/optimizer/optimizer.h"
#include "train/parameter_store.h"

#include <algorithm>

namespace trainopt {
namespace {

CachingAllocator::Stats allocator_stats() {
  const CachingAllocator* allocator = installed_caching_allocator();
  return allocator ? allocator->stats() : CachingAllocator::Stats();
}

}  // namespace

ObservedStep::ObservedStep(StepTrace& trace, const ParameterStore& parameters) : trace_(trace) {
  const auto gradients = parameters.gradients();
  trace_.gradients_at_start =
      std::count_if(gradients.begin(), gradients.end(), [](const at::Tensor& gradient) { return gradient.defined(); });
  trace_.parameters = static_cast<int64_t>(parameters.parameters().size());
  trace_.backend = current_backend_settings();
  const c10::Device device = parameters.parameters().front().second.device();
  if (trace_.backend.rounds_products() && !device.is_cpu())
    trace_.float32_product_error = float32_product_error(device);
  trace_.page_faults = page_faults();
  trace_.allocator = allocator_stats();
  observer_.emplace(trace_.operations);
}

std::unique_ptr<ObservedStep> ObservedStep::if_due(StepTrace& trace, const ParameterStore& parameters,
                                                   int64_t steps_taken, int64_t steps_left) {
  if (trace.step != 0 || !observes(steps_taken, steps_left)) return nullptr;
  return std::make_unique<ObservedStep>(trace, parameters);
}

void ObservedStep::finish(const End& end) {
  trace_.page_faults = page_faults() - trace_.page_faults;
  const auto allocator = allocator_stats();
  trace_.allocator = {.mapped_bytes = allocator.mapped_bytes,
                      .requests = allocator.requests - trace_.allocator.requests,
                      .cache_hits = allocator.cache_hits - trace_.allocator.cache_hits};
  if (const c10::Device device = end.parameters.parameters().front().second.device(); !device.is_cpu()) {
    trace_.device_memory = memory_stats(device).value();
    trace_.device_allocator_settings = device_allocator_settings();
  }
  trace_.parameter_bytes = end.parameters.parameter_bytes();
  trace_.gradient_bytes = end.gradient_bytes;
  trace_.optimizer_bytes = end.optimizer.state_bytes();
  trace_.loader = end.loader;
  trace_.step = end.step;
}

namespace {

/// What a phase allocates is filed under; units are named by wrappers of their own.
MemoryUse memory_of(Metric metric) { return metric == Metric::forward_ms ? MemoryUse::activations : MemoryUse::other; }

const char* phase_label(Metric metric) {
  switch (metric) {
    case Metric::forward_ms:
      return "forward";
    case Metric::backward_ms:
      return "backward";
    default:
      TRAINOPT_CHECK(metric == Metric::update_ms);
      return "update";
  }
}

}  // namespace

void StepPhases::run(Metric metric, const std::function<void()>& work) {
  const TraceRange range(phase_label(metric));
  const MemoryScope memory({.use = memory_of(metric), .phase = phase_label(metric)});
  if (device_.is_meta() || (replays_ && metric != Metric::update_ms)) return work();
  const auto span = std::make_shared<EventSpan>(device_);
  span->start.record(Stream::current(device_));
  work();
  span->end.record(Stream::current(device_));
  spans_.emplace_back(metric, span);
}

void StepPhases::move_to(PendingRecord& record) {
  for (auto& [metric, span] : spans_) record.add(metric, std::move(span));
  spans_.clear();
}

namespace {

constexpr int64_t kStepsPerLeakSearch = 10;
constexpr int64_t kFirstSteps = 10;  ///< steps in which memory is still being laid out

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
  if (kind_of(file) != PathKind::absent) return;  // the step's first attempt, with the largest micro-batches, wrote it
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
