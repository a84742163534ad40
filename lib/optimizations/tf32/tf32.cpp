#include "optimizations/tf32/tf32.h"

#include "train/plan.h"

namespace trainopt::tf32 {
namespace {

constexpr double kMaxFloat32Error = 1e-5;  // TF32 keeps 10 bits of the mantissa, float32 23

}  // namespace

Outcome apply(Plan& plan) {
  if (!plan.device.is_cuda()) return Outcome::none("TF32 needs an NVIDIA GPU; this plan runs on the CPU");
  if (plan.machine.sm < 80)
    return Outcome::none(fmt::format("TF32 needs a GPU from sm_80; this one is sm_{}", plan.machine.sm));
  plan.backend.allow_tf32 = true;
  return Outcome::applied("float32 convolutions and matrix products may use TF32", [](const StepTrace& seen) {
    const bool allowed = seen.backend.allow_tf32;
    const int64_t candidates = multiplications_by_type(seen)["float32"];
    const bool rounds = seen.float32_product_error > kMaxFloat32Error;
    const std::string test =
        allowed ? fmt::format("; a test product had a relative error of {:.0e}", seen.float32_product_error) : "";
    return Receipt{.observed = fmt::format("TF32 {} for {} float32 convolutions and matrix products{}",
                                           allowed ? "allowed" : "not allowed", candidates, test),
                   .effective = allowed && rounds && candidates > 0,
                   .reason = candidates == 0 ? "no convolution or matrix product ran in float32"
                             : !allowed      ? "another setting disabled it"
                             : !rounds       ? "the hardware computed the test product in full float32"
                                             : ""};
  });
}

}  // namespace trainopt::tf32
