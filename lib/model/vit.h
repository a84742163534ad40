// Vision transformers (Dosovitskiy et al., "An image is worth 16×16 words", 2020) as torchvision builds them. vit_s_16
// has the sizes of timm's ViT-S/16 (Touvron et al., "Training data-efficient image transformers", 2020). Units:
// patch_embedding, encoder.layers.encoder_layer_0, …, encoder.ln, head.
#pragma once

#include "model/builder.h"
#include "model/config.h"
#include "model/model.h"

namespace trainopt {

/// `config.name` must be one of the vits. The position embedding has one vector for each patch of `input`. Throws
/// UserError if the image cannot be divided into patches.
void build_vit(Builder& builder, const ModelConfig& config, const InputShape& input);

}  // namespace trainopt
