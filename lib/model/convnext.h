// ConvNeXt-T (Liu et al., "A ConvNet for the 2020s", 2022) as torchvision builds it. Units: features.0 (the stem),
// features.1.0, … (the blocks), features.2, … (halving the sides), classifier.
#pragma once

#include "model/builder.h"
#include "model/config.h"

namespace trainopt {

/// Images must have sides of at least 32 pixels. Throws UserError.
void build_convnext(Builder& builder, const ModelConfig& config, const InputShape& input);

}  // namespace trainopt
