#include "optimizations/fused_optimizer/fused_optimizer.h"

#include "device/cuda_library.h"
#include "kernels/meta.h"
#include "optimizations/fused_optimizer/fused_rules.h"
#include "optimizations/fused_optimizer/receipt.h"
#include "optimizations/option_checks.h"
#include "train/plan.h"

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

}  // namespace trainopt::fused_optimizer
