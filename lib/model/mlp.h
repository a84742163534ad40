// A multi-layer perceptron: flattens the sample, then applies linear layers `layers.0`, `layers.1`, … with ReLU and
// optional dropout between them. Each layer is a unit.
#pragma once

#include "model/builder.h"
#include "model/config.h"

namespace trainopt {

void build_mlp(Builder& builder, const ModelConfig& config, const InputShape& input);

}  // namespace trainopt
