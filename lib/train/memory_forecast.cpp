#include "train/memory_forecast.h"

#include "comm/communicator.h"
#include "data/batch_source.h"
#include "device/device.h"
#include "device/meta_device.h"
#include "device/tensor.h"
#include "train/micro_batches.h"
#include "train/observe/observed_step.h"
#include "train/plan.h"
#include "train/step.h"

#include <algorithm>

namespace trainopt {
namespace {

/// The plan on the meta device, with nothing to read or write.
Plan on_meta(Plan plan) {
  plan.device = at::kMeta;
  plan.model.config.weights.reset();
  // One micro-batch after another is alike; three show what accumulates.
  plan.data.accumulation = std::min<int64_t>(plan.data.accumulation, 3);
  // Only the stages of a pipeline order the passes otherwise; a recorded step runs as an eager one does.
  if (plan.stages.stages() == 1)
    plan.runner = {"runner", "eager", [](const BuildContext&) { return std::make_unique<EagerRunner>(); }};
  return plan;
}

/// The trainer's step (step.h), without clocks, records and data.
class RehearsedStep {
 public:
  explicit RehearsedStep(const Plan& plan)
      : plan_(on_meta(plan)),
        communicator_(make_shaped_communicator(plan.position, plan.device)),
        recorder_(plan_.device),
        memory_(&recorder_, /*whole_run=*/false),
        step_(plan_, *communicator_, steps_) {
    step_.build();
    memory_.attach(step_.model(), "");
    const MemoryScope scope({.use = MemoryUse::batches});
    batches_.emplace(plan_.data, plan_.loader, plan_.tensor_format, plan.device);
    if (plan_.replays_steps) {
      const Batch any = ShapedBatches(*batches_).next();
      static_batch_ = {at::empty_like(any.input), at::empty_like(any.target)};
    }
  }

  MemoryPeak run(int64_t number) {
    memory_.begin_step(number);
    step_.guard().begin(number, 0);
    for (bool last = false; !last;) {
      const Batch batch = next_batch();
      for (const Batch& micro : split_batch(batch, plan_.stages.micro_batches)) step_.run_micro_batch(micro);
      last = batch.is_last;
    }
    memory_.file_gradients(step_.parameters());
    step_.update();
    return recorder_.peak();
  }

 private:
  Batch next_batch() {
    const MemoryScope scope({.use = MemoryUse::batches, .phase = "loading"});
    return batches_->next();
  }

  Plan plan_;
  std::unique_ptr<Communicator> communicator_;
  MemoryRecorder recorder_;
  StepMemory memory_;
  const int64_t steps_ = -2;  ///< no step of the run: nothing is dumped
  Step step_;
  std::optional<ShapedBatches> batches_;
  std::vector<at::Tensor> static_batch_;  ///< a recorded step's own copy of its batch
};

MemoryPeak rehearse(const Plan& plan) {
  open_meta_device();
  const BackendGuard settings(plan.backend);
  const MetaStandsForCpu stands(plan.device.is_cpu());
  RehearsedStep step(plan);
  // The first step creates what later ones find: gradients that are kept, gathered parameters.
  const MemoryPeak first = step.run(1), second = step.run(2);
  return first.breakdown.total() > second.breakdown.total() ? first : second;
}

/// libtorch gives cuBLAS a work space on the thread that runs forward and on the one that runs backward, from its own
/// allocator: 32 MiB on Hopper and newer, or if it must be reproducible; otherwise 8.125 MiB
/// (aten/src/ATen/cuda/CublasHandlePool.cpp, PyTorch 2.11).
int64_t cublas_bytes(const Plan& plan) {
  if (!plan.device.is_cuda()) return 0;
  const int64_t kib = plan.machine.sm >= 90 || plan.process.deterministic ? 32 * 1024 : 2 * 4096 + 8 * 16;
  return 2 * kib * 1024;
}

}  // namespace

MemoryPeak forecast_memory(const Plan& plan) {
  try {
    MemoryPeak peak = rehearse(plan);
    peak.breakdown[MemoryUse::other] += cublas_bytes(plan);
    return peak;
  } catch (const c10::Error& error) {
    if (!traits_of(plan.model.config.name).from_file) throw;
    const std::string why = error.what_without_backtrace();
    throw NoForecast(fmt::format("the memory of a step is not forecast: {}",
                                 why.substr(0, std::min(why.find('\n'), why.find(", but there was no fake impl")))));
  }
}

int64_t memory_capacity(const Plan& plan) {
  return plan.device.is_cuda() ? plan.machine.gpu_memory_bytes : plan.machine.memory_bytes / plan.position.local_ranks;
}

}  // namespace trainopt
