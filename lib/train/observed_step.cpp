#include "train/observed_step.h"

#include "device/device_allocator.h"
#include "device/memory.h"
#include "train/optimizer.h"
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

}  // namespace trainopt
