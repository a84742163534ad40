#include "optimizations/fused_kernels/fused_kernels.h"

#include "optimizations/fused_kernels/block_operations.h"
#include "optimizations/fused_kernels/fused_task.h"
#include "train/plan.h"

namespace trainopt::fused_kernels {
namespace {

Receipt receipt(const Observations& seen) {
  Receipt receipt{.observed = "", .effective = true, .reason = ""};
  for (const auto& [counts, name] :
       {std::pair(seen.norms, "batch-norms"), std::pair(seen.average_pools, "average pools"),
        std::pair(seen.losses, "losses")}) {
    const int64_t all = counts.fused + counts.plain;
    if (all == 0) continue;  // this network has none
    receipt.observed += fmt::format("{}{} of {} {} fused, {} of their gradients", receipt.observed.empty() ? "" : "; ",
                                    counts.fused, all, name, counts.gradients);
    if (counts.plain > 0)
      receipt.reason += fmt::format("{}some {} were not fused", receipt.reason.empty() ? "" : "; ", name);
  }
  receipt.effective = seen.norms.fused + seen.average_pools.fused + seen.losses.fused > 0;
  if (!receipt.effective) receipt.reason = "the step had no fused kernel";
  return receipt;
}

}  // namespace

Outcome apply(Plan& plan) {
  // Asks no device: plans are also made for machines elsewhere.
  const bool on_cpu = plan.device.is_cpu();
  const auto* norm = on_cpu ? &kernels::cpu_norm_kernels() : kernels::cuda_norm_kernels();
  const auto* pool = on_cpu ? &kernels::cpu_pool_kernels() : kernels::cuda_pool_kernels();
  const auto* head = on_cpu ? &kernels::cpu_head_kernels() : kernels::cuda_head_kernels();
  if (norm == nullptr || pool == nullptr || head == nullptr)
    return Outcome::none("this build has no kernels for a GPU: it was configured with TRAINOPT_CUDA=OFF");
  plan.task.fill("fused_kernels", "classification: cross entropy and its gradient in one pass",
                 [head](const BuildContext& context) {
                   return std::make_unique<FusedClassificationTask>(context.plan.train.label_smoothing, *head);
                 });
  if (!plan.model.has_convolutions)
    return Outcome::applied(fmt::format("the loss with its gradient in one pass; the {} has no batch-norm",
                                        word_of(plan.model.config.name)),
                            receipt);
  const BlockKernels all{.norm = *norm, .pool = *pool, .head = *head};
  plan.batch_norm.fill("fused_kernels", "with addition, ReLU and the stem's max-pool in two passes",
                       [all](const BuildContext&) { return make_fused_batch_norm(all); });
  plan.head.fill("fused_kernels", "average pool in one pass, then the linear layer",
                 [all](const BuildContext&) { return make_fused_head(all); });
  // The kernels' own: otherwise the first one would convert.
  plan.tensor_format.memory_format = at::MemoryFormat::ChannelsLast;
  return Outcome::applied(
      "batch-norm with addition, ReLU and the stem's max-pool in two passes forward and two backward, the average pool "
      "in one and one, the loss with its gradient in "
      "one; activations as NHWC",
      receipt);
}

}  // namespace trainopt::fused_kernels
