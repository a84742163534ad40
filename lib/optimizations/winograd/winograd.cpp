#include "optimizations/winograd/winograd.h"

#include "kernels/winograd/winograd.h"
#include "optimizations/winograd/convolution.h"
#include "train/plan.h"

namespace trainopt::winograd {
namespace {

Receipt receipt(const StepTrace& seen) {
  const int64_t own = seen.calls([](const TracedOperation& operation) {
    return operation.name == kernels::winograd::kConvolutionLabel &&
           operation.grad_mode;  // not what is evaluated beside the training
  });
  const bool effective = own > 0;
  return {
      .observed = fmt::format("{} of {} convolutions, {} of their gradients", own, seen.calls(is_forward_convolution),
                              seen.calls(kernels::winograd::kConvolutionGradientLabel)),
      .effective = effective,
      .reason = effective ? ""
                          : "no convolution was 3×3 with stride 1, with enough channels and with enough numbers to "
                            "pay for transforming its weights"};
}

}  // namespace

Outcome apply(Plan& plan) {
  if (!plan.device.is_cpu())
    return Outcome::none("on a GPU cuDNN chooses the algorithm; cudnn_benchmark lets it time them");
  if (!plan.model.has_convolutions)
    return Outcome::none(fmt::format("the {} has no convolutions", word_of(plan.model.config.name)));
  plan.convolution.fill("winograd", "3×3 with stride 1 by Winograd's filtering",
                        [](const BuildContext&) { return make_convolutions(); });
  plan.tensor_format.memory_format = at::MemoryFormat::ChannelsLast;  // what the transforms read
  return Outcome::applied(
      "3×3 convolutions with stride 1, and their gradients, in tiles of 4×4 outputs, computed in float32; activations "
      "as NHWC",
      receipt);
}

}  // namespace trainopt::winograd
