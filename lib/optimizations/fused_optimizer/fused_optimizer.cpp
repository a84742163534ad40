#include "optimizations/fused_optimizer/fused_optimizer.h"

#include "base/units.h"
#include "device/cuda_library.h"
#include "kernels/meta.h"
#include "optimizations/fused_optimizer/fused_update.h"
#include "optimizations/info.h"
#include "train/optimizer/optimizer.h"
#include "train/plan.h"

#include <ATen/record_function.h>

namespace trainopt::fused_optimizer {
namespace {

const UpdateKernels& kernels_for(at::Device device) {
  using namespace kernels::update;
  if (device.is_meta()) return meta_kernels();
  if (device.is_cpu()) return cpu_kernels();
  TRAINOPT_CHECK(cuda_kernels() != nullptr);
  return *cuda_kernels();
}

}  // namespace

std::unique_ptr<Optimizer> make_fused_optimizer(const UpdateKernels& kernels, const BuildContext& context) {
  return make_fused_rule(kernels, context);
}

void check(OptionChecks& checks) {
  checks.learning_rate_on_device = true;
  if (checks.bfloat16_weights)
    checks.refuse("optimizations.fused_optimizer",
                  "its kernels update float32 weights only; remove it or optimizations.precision");
}

Outcome apply(Plan& plan) {
  if (!has_fused_rule(plan.optimizer_config))
    return Outcome::none("it has kernels for sgd, adam, adamw, lion, lars and lamb only");
  if (!plan.model.in_bfloat16.empty()) return Outcome::none("its kernels update float32 weights only");
  // Not whether there is a GPU: plans are also made for other machines.
  if (plan.device.is_cuda() && !built_for_cuda())
    return Outcome::none("this build has no GPU kernels: it was configured with TRAINOPT_CUDA=OFF");
  plan.optimizer.fill(
      "fused_optimizer", describe_optimizer(plan.optimizer_config) + ", one fused update of all parameters",
      [](const BuildContext& context) { return make_fused_optimizer(kernels_for(context.device), context); });
  plan.learning_rate_on_device = true;
  return Outcome::applied("one pass updates all parameters and also unscales, clips and zeroes gradients as needed",
                          receipt);
}

void post(const Update& update) {
  RECORD_FUNCTION(kUpdateLabel, std::vector<c10::IValue>({update.tensors, update.launches, update.copies, update.scaled,
                                                          update.clipped, update.cleared}));
}

Update update_of(const StepTrace& trace) {
  const TracedOperation* posted = trace.find(kUpdateLabel);
  if (posted == nullptr) return {};
  return {.tensors = posted->number(0),
          .launches = posted->number(1),
          .copies = posted->number(2),
          .scaled = posted->number(3) != 0,
          .clipped = posted->number(4) != 0,
          .cleared = posted->number(5) != 0};
}

int64_t casts_of_parameters(const StepTrace& trace) {
  return trace.calls([](const TracedOperation& operation) {
    const TracedTensor* from = operation.tensor(0);
    if (operation.name != "aten::_to_copy" || from == nullptr || !from->is_parameter) return false;
    const auto to = static_cast<c10::ScalarType>(operation.number(1));
    return to == c10::kBFloat16 || to == c10::kHalf;
  });
}

Receipt receipt(const StepTrace& trace) {
  const Update update = update_of(trace);
  const int64_t operations = trace.calls([](const TracedOperation& operation) {
    return operation.range == kOptimizerLabel && operation.depth == 0;  // nested operations belong to their parent
  });
  std::string along;
  for (const auto& [done, what] :
       {std::pair(update.scaled, "gradients unscaled"), std::pair(update.clipped, "gradients clipped"),
        std::pair(update.cleared, "gradients zeroed")})
    if (done) along += fmt::format(", {}", what);
  if (const int64_t measures = trace.calls(kMeasureLabel); measures > 0)
    along += fmt::format("; {} of the gradients for norm and finiteness", counted(measures, "extra read"));
  if (update.copies > 0)
    along += fmt::format("; 16-bit copies of {} kept, {} parameter casts in the step",
                         counted(update.copies, "parameter"), casts_of_parameters(trace));
  const bool effective = update.tensors > 0 && operations == 1;
  return {
      .observed = fmt::format("{} of {} updated in {}{}", update.tensors, counted(trace.parameters, "parameter tensor"),
                              counted(update.launches, "launch", "es"), along),
      .effective = effective,
      .reason = effective             ? ""
                : update.tensors == 0 ? "it updated no parameter"
                                      : "parameters were updated in more than one operation"};
}

}  // namespace trainopt::fused_optimizer
