#include "optimizations/winograd/winograd.h"

#include "optimizations/winograd/convolution.h"
#include "train/plan.h"

namespace trainopt::winograd {
namespace {

Receipt receipt(const StepTrace& seen) {
  const int64_t own = seen.calls([](const TracedOperation& operation) {
    return operation.name == kConvolutionLabel && operation.grad_mode;  // not what is evaluated beside the training
  });
  const bool effective = own > 0;
  return {.observed = fmt::format("{} of {} convolutions, {} of their gradients", own,
                                  seen.calls(is_forward_convolution), seen.calls(kConvolutionGradientLabel)),
          .effective = effective,
          .reason = effective ? ""
                              : "no convolution was 3×3 with stride 1, with enough channels and with enough numbers to "
                                "pay for transforming its weights"};
}

}  // namespace

Outcome apply(Plan& plan) {
  if (!plan.device.is_cpu())
    return Outcome::none("on a GPU cuDNN chooses the algorithm; cudnn_benchmark lets it time them");
  if (plan.model.config.name == ModelKind::mlp) return Outcome::none("the mlp has no convolutions");
  plan.model.convolutions = make_convolutions();
  plan.model.memory_format = at::MemoryFormat::ChannelsLast;  // what the transforms read
  plan.data.options.memory_format = at::MemoryFormat::ChannelsLast;
  return Outcome::applied(
      "3×3 convolutions with stride 1, and their gradients, in tiles of 4×4 outputs, computed in float32; activations "
      "as NHWC",
      receipt);
}

}  // namespace trainopt::winograd
