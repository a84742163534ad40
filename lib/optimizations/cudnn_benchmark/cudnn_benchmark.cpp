#include "optimizations/cudnn_benchmark/cudnn_benchmark.h"

#include "optimizations/info.h"
#include "train/plan.h"

namespace trainopt::cudnn_benchmark {

void check(OptionChecks& checks) {
  if (checks.deterministic)
    checks.refuse("optimizations.cudnn_benchmark",
                  "picks algorithms by timing them, which deterministic: true forbids; turn one of them off");
}

Outcome apply(Plan& plan) {
  if (!plan.device.is_cuda()) return Outcome::none("cuDNN runs on NVIDIA GPUs; this plan runs on the CPU");
  plan.backend.cudnn_benchmark = true;
  return Outcome::applied("cuDNN picks algorithms by timing them", [](const StepTrace& seen) {
    const int64_t convolutions = seen.calls(is_forward_convolution);
    const bool enabled = seen.backend.cudnn_benchmark;
    return Receipt{.observed = fmt::format("{} during a step with {} forward convolutions; cuDNN does not report what "
                                           "it chose",
                                           enabled ? "enabled" : "disabled", convolutions),
                   .effective = enabled && convolutions > 0,
                   .reason = !enabled            ? "another setting disabled it"
                             : convolutions == 0 ? "the step had no convolution"
                                                 : ""};
  });
}

}  // namespace trainopt::cudnn_benchmark
