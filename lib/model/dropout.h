// Dropout that draws from the trainer's generator.
#pragma once

#include "model/unit.h"

namespace trainopt {

/// torch's dropout: in training, sets each value to 0 with the probability `rate`, which is below 1, and divides the
/// others by 1 - rate. Otherwise, and at rate 0, returns `input`.
at::Tensor dropout(const at::Tensor& input, double rate, const ForwardContext& context);

}  // namespace trainopt
