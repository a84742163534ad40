#include "optimizations/fp8/fp8.h"

#include "base/units.h"
#include "optimizations/fp8/amax_history.h"
#include "optimizations/fp8/linear.h"
#include "optimizations/info.h"
#include "train/plan.h"

#include <algorithm>

namespace trainopt::fp8 {
namespace {

constexpr int kFirstSm = 89;

at::Tensor own_amax(const at::Tensor&, Operand, const at::Tensor& current, bool) { return current; }

/// Why the plan's layers cannot run in 8 bits; empty if some can.
std::string why_not(const Plan& plan) {
  if (plan.device.is_cuda() && plan.machine.sm < kFirstSm)
    return fmt::format("fp8 needs a GPU from sm_{}; this one is sm_{}", kFirstSm, plan.machine.sm);
  const auto& layers = plan.model.layers.linears;
  if (std::any_of(layers.begin(), layers.end(), [](const LinearSize& layer) { return fits(layer.in, layer.out); }))
    return "";
  if (layers.empty()) return plan.model.has_no("linear layers");
  std::string sizes;
  for (const LinearSize& layer : layers)
    sizes += fmt::format("{}{} → {}", sizes.empty() ? "" : ", ", layer.in, layer.out);
  return fmt::format("fp8 needs linear layers with sizes divisible by {}; the {} has {}", kMultiple, plan.model.noun(),
                     sizes);
}

Receipt receipt(const StepTrace& seen, const std::string& how) {
  const auto in_training = [&](const char* label) {
    return seen.calls([&](const TracedOperation& operation) { return operation.name == label && operation.grad_mode; });
  };
  const int64_t fp8 = in_training(kLinearLabel), others = in_training(kOtherLinearLabel);
  const std::string why_others =
      others > 0 ? fmt::format(" ({} with sizes not divisible by {})", others, kMultiple) : "";
  return {
      .observed = fmt::format("{} of {} ran in fp8{}, {} of their gradients; {}", fp8,
                              counted(fp8 + others, "linear layer"), why_others, seen.calls(kLinearGradientLabel), how),
      .effective = fp8 > 0,
      .reason = fp8 > 0 ? "" : "no linear layer ran in fp8"};
}

}  // namespace

void check(OptionChecks& checks, const Config& config) {
  if (config.recipe == Scaling::rowwise && config.amax_history > 0)
    checks.refuse("optimizations.fp8.amax_history", "only tensorwise scaling has a history");
}

Outcome apply(Plan& plan, const Config& config) {
  if (const std::string reason = why_not(plan); !reason.empty()) return Outcome::none(reason);
  const std::string_view scaling = word_of(config.recipe);
  const bool emulates = plan.device.is_cpu() && config.recipe == Scaling::rowwise;  // libtorch refuses it there
  const auto make = [recipe = config.recipe, emulates](ChooseAmax choose) {
    return make_linear(recipe, emulates ? emulated_product : product, std::move(choose));
  };
  const std::string what = fmt::format("8-bit inputs, {} scales", scaling);
  if (config.amax_history == 0)
    plan.operations.linear.fill("fp8", what, [make](const BuildContext&) { return make(own_amax); });
  else {
    const auto histories = std::make_shared<Histories>();
    const auto history_of = [histories, length = config.amax_history](const BuildContext& context) {
      return histories->of(context, length);
    };
    plan.operations.linear.fill("fp8", what, [make, history_of](const BuildContext& context) {
      return make([history = history_of(context)](const auto&... of) { return history->choose(of...); });
    });
    plan.precision.wrap("fp8", fmt::format("scales from the last {}", counted(config.amax_history, "step")),
                        [history_of](const BuildContext& context, std::unique_ptr<Precision> inner) {
                          return with_history(std::move(inner), history_of(context));
                        });
  }
  const std::string text = fmt::format("products of linear layers, forward and backward, with {} scales", scaling);
  const std::string how = emulates ? "emulated in float32" : "by libtorch";
  return Outcome::applied(text, [how](const StepTrace& seen) { return receipt(seen, how); })
      .doubted([](const Plan& complete) -> std::string {
        return complete.device.is_cpu()
                   ? "CPUs compute its products in float32, so it shows only what fp8 does to a training"
                   : "";
      });
}

}  // namespace trainopt::fp8
