// ResNet-18, -34 and -50 (He et al., "Deep residual learning", 2015) as torchvision builds them: ResNet-50 is "v1.5",
// with the stride in the 3×3 convolution. Units: stem, layer1.0, layer1.1, …, head.
#pragma once

#include "model/builder.h"
#include "model/config.h"

namespace trainopt {

/// `config.name` must be one of the resnets.
void build_resnet(Builder& builder, const ModelConfig& config, const InputShape& input);

}  // namespace trainopt
