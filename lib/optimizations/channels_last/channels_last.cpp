#include "optimizations/channels_last/channels_last.h"

#include "train/plan.h"

namespace trainopt::channels_last {

Outcome apply(Plan& plan) {
  if (plan.model.layers.convolutions() < 2)  // no activations between convolutions
    return Outcome::none(fmt::format("the {} has no images between its layers", plan.model.noun()));
  // The loader writes NHWC directly, so nothing is converted later.
  plan.tensor_format.memory_format = at::MemoryFormat::ChannelsLast;
  return Outcome::applied("weights, activations and batches as NHWC", [](const StepTrace& seen) {
    const int64_t convolutions = seen.calls(is_forward_convolution);
    const int64_t nhwc = seen.calls([](const TracedOperation& operation) {
      return is_forward_convolution(operation) && operation.tensor(0)->is_nhwc;
    });
    const bool all = convolutions > 0 && nhwc == convolutions;
    return Receipt{.observed = fmt::format("{} of {} convolutions read NHWC", nhwc, convolutions),
                   .effective = nhwc > 0,
                   .reason = all                 ? ""
                             : convolutions == 0 ? "the step had no convolution"
                                                 : "some activations were stored as NCHW"};
  });
}

}  // namespace trainopt::channels_last
