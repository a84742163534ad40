#include "optimizations/fused_kernels/fused_kernels.h"

#include "optimizations/fused_kernels/block_operations.h"
#include "train/plan.h"

namespace trainopt::fused_kernels {

Outcome apply(Plan& plan) {
  if (plan.model.config.name == ModelKind::mlp) return Outcome::none("the mlp has no batch-norm");
  if (!plan.device.is_cpu()) return Outcome::none("its kernels are for CPUs so far");
  plan.model.operations = make_fused_block_operations(cpu_kernels());
  plan.model.memory_format = at::MemoryFormat::ChannelsLast;   // the kernels' own: otherwise the first one would convert
  plan.data.options.memory_format = at::MemoryFormat::ChannelsLast;
  return Outcome::applied("batch-norm with addition, ReLU and the stem's max-pool in two passes forward and two backward; activations as NHWC", [](const Observations& seen) {
    const int64_t all = seen.fused_norms + seen.plain_norms;
    return Receipt{.observed = fmt::format("{} of {} batch-norms fused, {} of their gradients", seen.fused_norms, all, seen.fused_norm_gradients),
                   .effective = seen.fused_norms > 0,
                   .reason = seen.fused_norms == 0 ? "the step had no fused batch-norm" : seen.plain_norms > 0 ? "some batch-norms were not fused" : ""};
  });
}

}  // namespace trainopt::fused_kernels
