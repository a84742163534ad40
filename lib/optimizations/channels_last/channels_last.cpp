#include "optimizations/channels_last/channels_last.h"

#include "train/plan.h"

namespace trainopt::channels_last {

Outcome apply(Plan& plan) {
  if (!plan.model.has_convolutions)
    return Outcome::none(fmt::format("the {} has no convolutions", word_of(plan.model.config.name)));
  // The loader writes NHWC at once, nothing is converted later.
  plan.tensor_format.memory_format = at::MemoryFormat::ChannelsLast;
  return Outcome::applied("weights, activations and batches as NHWC", [](const Observations& seen) {
    const bool all = seen.convolution_inputs > 0 && seen.channels_last_inputs == seen.convolution_inputs;
    return Receipt{
        .observed = fmt::format("{} of {} convolutions read NHWC", seen.channels_last_inputs, seen.convolution_inputs),
        .effective = seen.channels_last_inputs > 0,
        .reason = all                            ? ""
                  : seen.convolution_inputs == 0 ? "the step had no convolution"
                                                 : "some activations were stored as NCHW"};
  });
}

}  // namespace trainopt::channels_last
