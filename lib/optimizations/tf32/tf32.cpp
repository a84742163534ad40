#include "optimizations/tf32/tf32.h"

#include "train/plan.h"

namespace trainopt::tf32 {

Outcome apply(Plan& plan) {
  if (!plan.device.is_cuda()) return Outcome::none("TF32 needs an NVIDIA GPU; this plan runs on the CPU");
  if (plan.machine.sm < 80)
    return Outcome::none(fmt::format("TF32 needs a GPU from sm_80; this one is sm_{}", plan.machine.sm));
  plan.backend.allow_tf32 = true;
  return Outcome::applied("float32 convolutions and matrix products may use TF32", [](const StepTrace& seen) {
    const bool allowed = seen.backend.allow_tf32;
    const int64_t candidates = multiplications_by_type(seen)["float32"];
    const bool effective = allowed && candidates > 0;
    return Receipt{.observed = fmt::format("TF32 {} for {} float32 convolutions and matrix products",
                                           allowed ? "allowed" : "not allowed", candidates),
                   .effective = effective,
                   .reason = effective        ? ""
                             : candidates > 0 ? "another setting disabled it"
                                              : "no convolution or matrix product ran in float32"};
  });
}

}  // namespace trainopt::tf32
