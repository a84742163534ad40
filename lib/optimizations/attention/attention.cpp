#include "optimizations/attention/attention.h"

#include "base/units.h"
#include "kernels/attention/attention.h"
#include "train/plan.h"

#include <fmt/ranges.h>

#include <map>

namespace trainopt::attention {
namespace {

struct Implementation {
  const char *operation, *name;
};
constexpr const char* kOwn = kernels::kAttentionLabel;
/// What at::scaled_dot_product_attention calls, and what runs in its place.
constexpr Implementation kImplementations[] = {{"aten::_scaled_dot_product_flash_attention_for_cpu", "flash"},
                                               {"aten::_scaled_dot_product_flash_attention", "flash"},
                                               {"aten::_scaled_dot_product_efficient_attention", "efficient"},
                                               {"aten::_scaled_dot_product_cudnn_attention", "cudnn"},
                                               {"aten::_scaled_dot_product_attention_math", "math"},
                                               {kDroppedAttentionLabel, "math"},
                                               {kWrittenAttentionLabel, "math"},
                                               {kOwn, "fused_kernels"}};

/// By implementation: the calls of a step's forward passes.
std::map<std::string, int64_t> calls_of(const StepTrace& seen) {
  std::map<std::string, int64_t> calls;
  for (const auto& [operation, name] : kImplementations)
    if (const int64_t count = seen.calls([&](const TracedOperation& one) {
          return one.name == operation && (one.grad_mode || operation == kOwn);  // ours turns it off
        }))
      calls[name] += count;
  return calls;
}

/// Libtorch's attention, also where a program has written its own out.
class AskedForAttention : public AttentionOperations {
 public:
  explicit AskedForAttention(std::unique_ptr<AttentionOperations> inner) : inner_(std::move(inner)) {}
  at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const AttentionOptions& options, const ForwardContext& context) const override {
    return inner_->attention(query, key, value, options, context);
  }

 private:
  std::unique_ptr<AttentionOperations> inner_;
};

/// Why it cannot run whatever the shapes; empty if it can.
std::string why_not(const Plan& plan, AttentionKernel kernel) {
  const LayerCounts& layers = plan.model.layers;
  if (layers.attentions == 0) return plan.model.has_no("attention");
  if (kernel == AttentionKernel::automatic && layers.attentions == layers.written_attentions &&
      plan.operations.attention.is_plain())
    return "the program writes its attention out; attention: flash replaces it";
  const bool drops = plan.model.input.is_text() && plan.model.config.dropout > 0;
  if (drops || layers.attention_drops)
    return fmt::format(
        "libtorch's kernels would draw the dropout of the attention's weights from a generator of their own, so it "
        "runs as math; {} lets them run",
        layers.attention_drops ? "a program exported without this dropout" : "model.dropout: 0");
  const bool needs_16_bits = kernel == AttentionKernel::flash || kernel == AttentionKernel::cudnn;
  if (plan.device.is_cuda() && needs_16_bits && plan.tensor_format.compute_type == at::kFloat)
    return fmt::format("{} needs 16-bit types (optimizations.amp); libtorch chooses here", word_of(kernel));
  if (plan.device.is_cuda() && needs_16_bits && plan.machine.sm < 80)
    return fmt::format("{} needs a GPU from sm_80, and this one is sm_{}; libtorch chooses here", word_of(kernel),
                       plan.machine.sm);
  if (plan.device.is_cpu() && (kernel == AttentionKernel::efficient || kernel == AttentionKernel::cudnn))
    return fmt::format("on CPUs libtorch has flash and math; {} needs an NVIDIA GPU, so this runs as with auto",
                       word_of(kernel));
  return "";
}

Receipt receipt(const StepTrace& seen, AttentionKernel wanted) {
  const auto calls = calls_of(seen);
  std::vector<std::string> parts;
  for (const auto& [name, count] : calls) parts.push_back(fmt::format("{} by {}", counted(count, "attention"), name));
  Receipt receipt{
      .observed = parts.empty() ? "no attention ran in the step" : fmt::format("{}", fmt::join(parts, ", ")),
      .effective = false,
      .reason = ""};
  const std::string name(wanted == AttentionKernel::automatic ? "" : word_of(wanted));
  int64_t as_wanted = 0, others = 0;
  for (const auto& [ran, count] : calls)
    (name.empty() ? ran != "math" : ran == name) ? as_wanted += count : others += count;
  receipt.effective = as_wanted > 0;
  if (others > 0 && !name.empty())
    receipt.reason = fmt::format("libtorch's {} does not support the types and sizes of {}", name,
                                 as_wanted > 0 ? "some" : "this model's attention");
  else if (!receipt.effective)
    receipt.reason = calls.empty() ? "the step was not observed" : "none of libtorch's fused kernels supports it";
  return receipt;
}

}  // namespace

Outcome apply(Plan& plan, AttentionKernel kernel) {
  const std::string reason = why_not(plan, kernel);
  plan.backend.attention = reason.empty() ? kernel : AttentionKernel::automatic;
  if (!reason.empty()) return Outcome::none(reason);
  if (kernel != AttentionKernel::automatic && kernel != AttentionKernel::math &&
      plan.model.layers.replaced_if_asked > 0)
    plan.operations.attention.wrap("attention", "also where the program writes it out",
                                   [](const BuildContext&, std::unique_ptr<AttentionOperations> inner) {
                                     return std::make_unique<AskedForAttention>(std::move(inner));
                                   });
  return Outcome::applied(
      kernel == AttentionKernel::automatic
          ? fmt::format("{} an implementation that does not store the scores of all pairs of tokens",
                        plan.operations.attention.is_plain() ? "libtorch chooses" : "fused_kernels has")
          : fmt::format("{}, which does not store the scores of all pairs of tokens; math where it "
                        "does not support them",
                        word_of(kernel)),
      [kernel](const StepTrace& seen) { return receipt(seen, kernel); });
}

}  // namespace trainopt::attention
