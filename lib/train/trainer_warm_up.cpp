#include "train/trainer.h"

#include "device/memory.h"
#include "device/tensor.h"
#include "train/micro_batches.h"

namespace trainopt {

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
