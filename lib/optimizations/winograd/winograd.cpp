#include "optimizations/winograd/winograd.h"

#include "kernels/winograd/winograd.h"
#include "optimizations/winograd/convolution.h"
#include "train/plan.h"

namespace trainopt::winograd {
namespace {

Receipt receipt(const StepTrace& seen) {
  const int64_t own = seen.calls([](const TracedOperation& operation) {
    return operation.name == kernels::winograd::kConvolutionLabel && operation.grad_mode;  // excludes evaluation
  });
  const bool effective = own > 0;
  return {.observed =
              fmt::format("{} of {} convolutions and {} of their gradients used Winograd", own,
                          seen.calls(is_forward_convolution), seen.calls(kernels::winograd::kConvolutionGradientLabel)),
          .effective = effective,
          .reason =
              effective ? "" : "no 3×3 convolution with stride 1 had enough channels and outputs for Winograd to pay"};
}

}  // namespace

Outcome apply(Plan& plan) {
  if (!plan.device.is_cpu())
    return Outcome::none("on a GPU cuDNN chooses the algorithm; cudnn_benchmark makes it time them");
  if (plan.model.layers.convolutions_3x3 == 0)
    return Outcome::none(fmt::format("the {} has no 3×3 convolutions", word_of(plan.model.config.name)));
  plan.convolution.fill("winograd", "Winograd for 3×3 with stride 1",
                        [](const BuildContext&) { return make_convolutions(); });
  plan.tensor_format.memory_format = at::MemoryFormat::ChannelsLast;  // the order that the transforms read
  return Outcome::applied(
      "Winograd F(4×4, 3×3) in float32 for 3×3 convolutions with stride 1 and their gradients; activations as NHWC",
      receipt);
}

}  // namespace trainopt::winograd
