#include "optimizations/cudnn_benchmark/cudnn_benchmark.h"

#include "train/plan.h"

namespace trainopt::cudnn_benchmark {

Outcome apply(Plan& plan) {
  if (!plan.device.is_cuda()) return Outcome::none("cuDNN runs on NVIDIA GPUs; this plan runs on the CPU");
  plan.backend.cudnn_benchmark = true;
  return Outcome::applied("cuDNN picks algorithms by timing them", [](const Observations& seen) {
    const bool effective = seen.cudnn_benchmark && seen.convolution_inputs > 0;
    return Receipt{.observed = fmt::format("on during a step with {} forward convolutions", seen.convolution_inputs),
                   .effective = effective,
                   .reason = effective ? "" : "the step had no convolution"};
  });
}

}  // namespace trainopt::cudnn_benchmark
