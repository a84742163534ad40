#include "optimizations/fused_kernels/fused_kernels.h"

#include "base/units.h"
#include "device/cuda_library.h"
#include "kernels/attention/attention.h"
#include "kernels/meta.h"
#include "optimizations/fused_kernels/fused_operations.h"
#include "optimizations/info.h"
#include "train/plan.h"

#include <fmt/ranges.h>

#include <span>

namespace trainopt::fused_kernels {
namespace {

struct Fused {
  const char *what, *plain, *forward,
      *backward;  ///< for the receipt; libtorch's operation, if this always replaces it; our label and its gradient's
};
// Attentions left to libtorch are counted by the receipt of `attention`. Linear layers are left to it where its product
// is fast.
constexpr Fused kLinears{"linear layers", "", kLinearLabel, kLinearGradientLabel},
    kLayerNorms{"layer norms", "aten::layer_norm", kernels::kLayerNormLabel, kernels::kLayerNormGradientLabel},
    kGelus{"GELUs", "aten::gelu", kernels::kGeluLabel, kernels::kGeluGradientLabel},
    kAttentions{"attentions", "", kernels::kAttentionLabel, kernels::kAttentionGradientLabel};
constexpr Fused kFused[] = {
    kLinears,
    kLayerNorms,
    kGelus,
    kAttentions,
    {"batch-norms", "aten::batch_norm", kernels::kNormLabel, kernels::kNormGradientLabel},
    {"average pools", "aten::adaptive_avg_pool2d", kernels::kAveragePoolLabel, kernels::kAveragePoolGradientLabel},
    {"losses", "aten::cross_entropy_loss", kernels::kCrossEntropyLabel, kernels::kCrossEntropyGradientLabel}};
constexpr Fused kFusedOfLanguageModels[] = {
    kLinears,
    kLayerNorms,
    kGelus,
    kAttentions,
    {"language heads", "aten::cross_entropy_loss", kernels::kLinearCrossEntropyLabel,
     kernels::kLinearCrossEntropyGradientLabel}};

BlockKernels kernels_for(at::Device device) {
  using namespace kernels;
  if (device.is_meta()) return {.norm = meta_norm_kernels(), .pool = meta_pool_kernels(), .head = meta_head_kernels()};
  if (device.is_cpu()) return {.norm = cpu_norm_kernels(), .pool = cpu_pool_kernels(), .head = cpu_head_kernels()};
  const auto* norm = cuda_norm_kernels();
  const auto* pool = cuda_pool_kernels();
  const auto* head = cuda_head_kernels();
  TRAINOPT_CHECK(norm && pool && head);
  return {.norm = *norm, .pool = *pool, .head = *head};
}

/// What a language model's logits in pieces save, as posted by the kernel.
std::string bytes_not_allocated(const StepTrace& seen) {
  const TracedOperation* posted = seen.find(kernels::kLinearCrossEntropyLabel);
  if (posted == nullptr) return "";
  const auto bytes = [&](size_t i) { return static_cast<double>(posted->number(i)); };
  return fmt::format("; logits in {} pieces: {} not allocated, {} allocated", posted->number(2),
                     human_bytes(bytes(4) - bytes(3)), human_bytes(bytes(3)));
}

Receipt receipt(std::span<const Fused> parts, const StepTrace& seen) {
  Receipt receipt{.observed = "", .effective = false, .reason = ""};
  for (const auto& [what, plain_name, forward, backward] : parts) {
    const int64_t fused = seen.calls(forward);
    const int64_t plain = seen.calls([&](const TracedOperation& operation) {
      const bool is_written = what == kGelus.what && operation.name == kWrittenGeluLabel;
      return (operation.name == plain_name || is_written) && operation.grad_mode;  // excludes evaluation
    });
    if (fused + plain == 0) continue;  // this network has none
    receipt.observed += fmt::format("{}{} of {} {} fused, {} of their gradients", receipt.observed.empty() ? "" : "; ",
                                    fused, fused + plain, what, seen.calls(backward));
    if (plain > 0) receipt.reason += fmt::format("{}some {} were not fused", receipt.reason.empty() ? "" : "; ", what);
    receipt.effective |= fused > 0;
  }
  receipt.observed += bytes_not_allocated(seen);
  if (!receipt.effective) receipt.reason = "no fused kernel ran in the step";
  return receipt;
}
Receipt receipt_of_images(const StepTrace& seen) { return receipt(kFused, seen); }
/// Losses, which are last in the list, are not ours.
Receipt receipt_of_own_loss(const StepTrace& seen) {
  return receipt(std::span(kFused).first(std::size(kFused) - 1), seen);
}
Receipt receipt_of_language(const StepTrace& seen) { return receipt(kFusedOfLanguageModels, seen); }

/// Fills the slots of the operations on rows that the network has. Returns what is fused; empty if it has none.
std::string fuse_row_operations(Plan& plan) {
  const LayerCounts& layers = plan.model.layers;
  if (layers.layer_norms > 0)
    plan.operations.layer_norm.fill(
        "fused_kernels", "with the residual addition before it, in one pass",
        [](const BuildContext& context) { return make_fused_layer_norm(row_kernels_for(context.device)); });
  if (layers.gelus > 0)
    plan.operations.gelu.fill(
        "fused_kernels", "with the bias of the linear layer, in one pass",
        [](const BuildContext& context) { return make_fused_gelu(row_kernels_for(context.device)); });
  if (layers.attentions > 0 && !plan.device.is_cuda())
    plan.operations.attention.fill("fused_kernels", "in blocks of queries, if optimizations.attention is auto",
                                   [](const BuildContext&) { return make_fused_attention(); });
  std::vector<const char*> fused;
  if (layers.layer_norms > 0) fused.push_back("layer norm with the addition before it");
  if (layers.gelus > 0) fused.push_back("GELU with the bias before it");
  return fused.empty() ? "" : fmt::format("{} (one pass each way)", fmt::join(fused, " and "));
}

/// A network with batch-norm and a single linear layer has that as its classifier, and its product is small.
void speed_up_linear_layers(Plan& plan) {
  const LayerCounts& layers = plan.model.layers;
  if (plan.device.is_cuda() || (layers.batch_norms > 0 && layers.linears.size() < 2)) return;
  plan.operations.linear.wrap(
      "fused_kernels", "large float32 products by oneDNN where MKL is slower",
      [](const BuildContext&, std::unique_ptr<LinearOperations> inner) { return make_fused_linear(std::move(inner)); });
}

Outcome apply_to_language_model(Plan& plan, const std::string& rows) {
  if (!plan.model.layers.language_head) {
    const char* const why =
        "the program's logits are not those of a linear layer without bias, so their loss is not fused";
    const LayerCounts& layers = plan.model.layers;
    if (rows.empty() && layers.linears.empty() && layers.attentions == 0) return Outcome::none(why);
    return Outcome::applied(
        fmt::format("{}; {}", rows.empty() ? "large products and attention where they are faster" : rows, why),
        receipt_of_language);
  }
  plan.operations.language_head.fill(
      "fused_kernels", "logits, loss and their gradients in pieces of tokens",
      [](const BuildContext& context) { return make_fused_language_head(language_head_kernels(context.device)); });
  return Outcome::applied(
      fmt::format("{}last layer and loss with their gradients in pieces of tokens: no logits of all tokens",
                  rows.empty() ? "" : rows + "; "),
      receipt_of_language);
}

void fuse_loss(Plan& plan) {
  plan.task.fill("fused_kernels", "classification: cross entropy and its gradient in one pass",
                 [](const BuildContext& context) {
                   return std::make_unique<FusedClassificationTask>(context.plan.train.label_smoothing,
                                                                    kernels_for(context.device).head);
                 });
}

Outcome outcome_without_batch_norms(const Plan& plan, const std::string& rows) {
  if (plan.model.task == ModelTask::classification)
    return Outcome::applied(rows.empty()
                                ? fmt::format("loss and its gradient in one pass; {}", plan.model.has_no("batch-norm"))
                                : rows + ", loss with its gradient (one)",
                            receipt_of_images);
  const char* const why = "the program computes its own loss, which is not fused";
  const LayerCounts& layers = plan.model.layers;
  if (rows.empty() && layers.linears.empty() && layers.attentions == 0) return Outcome::none(why);
  return Outcome::applied(
      fmt::format("{}; {}", rows.empty() ? "large products and attention where they are faster" : rows, why),
      receipt_of_own_loss);
}

}  // namespace

void check(OptionChecks& checks) {
  if (checks.sync_batch_norm)
    checks.refuse("optimizations.fused_kernels",
                  "computes batch-norm statistics over one rank only; turn off parallel.sync_batch_norm or this");
}

Outcome apply(Plan& plan) {
  // Not whether there is a GPU: plans are also made for other machines.
  if (plan.device.is_cuda() && !built_for_cuda())
    return Outcome::none("this build has no GPU kernels: it was configured with TRAINOPT_CUDA=OFF");
  speed_up_linear_layers(plan);
  const std::string rows = fuse_row_operations(plan);
  if (plan.model.task == ModelTask::language_model) return apply_to_language_model(plan, rows);
  if (plan.model.task == ModelTask::classification) fuse_loss(plan);
  if (plan.model.layers.batch_norms == 0) return outcome_without_batch_norms(plan, rows);
  plan.operations.batch_norm.fill(
      "fused_kernels", "fused with addition, ReLU and the stem's max-pool, in two passes",
      [](const BuildContext& context) { return make_fused_batch_norm(kernels_for(context.device)); });
  plan.operations.head.fill("fused_kernels", "average pool in one pass, then the linear layer",
                            [](const BuildContext& context) { return make_fused_head(kernels_for(context.device)); });
  // The kernels' own order; otherwise the first kernel would convert.
  plan.tensor_format.memory_format = at::MemoryFormat::ChannelsLast;
  return Outcome::applied(
      fmt::format("{}batch-norm fused with addition, ReLU and the stem's max-pool (two passes forward, two backward), "
                  "average pool (one and one){}; activations as NHWC",
                  rows.empty() ? "" : rows + "; ",
                  plan.model.task == ModelTask::loss ? "" : ", loss with its gradient (one)"),
      plan.model.task == ModelTask::loss ? receipt_of_own_loss : receipt_of_images);
}

}  // namespace trainopt::fused_kernels
