#include "device/gpu_error.h"
#include "train/trainer.h"

#include <deque>

// A GPU fault ends the trainer: nothing on the GPU can be read, repeated or even freed.
namespace trainopt {
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
