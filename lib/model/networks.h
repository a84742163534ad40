// The networks: one function each, in a source of its own, that adds the units to a Builder. `config.name` is one of
// the network's kinds, and `input` the shape of a sample.
#pragma once

#include "model/builder.h"
#include "model/config.h"

namespace trainopt {

/// A multi-layer perceptron: flattens the sample, then applies linear layers `layers.0`, `layers.1`, … with ReLU
/// and optional dropout between them. Each layer is a unit.
void build_mlp(Builder& builder, const ModelConfig& config, const InputShape& input);

/// ResNet-18, -34 and -50 (He et al., "Deep residual learning", 2015) as torchvision builds them: ResNet-50 is
/// "v1.5", with the stride in the 3×3 convolution. Units: stem, layer1.0, layer1.1, …, head.
void build_resnet(Builder& builder, const ModelConfig& config, const InputShape& input);

/// ConvNeXt-T (Liu et al., "A ConvNet for the 2020s", 2022) as torchvision builds it. Units: features.0 (the stem),
/// features.1.0, … (the blocks), features.2, … (halving the sides), classifier. Images must have sides of at least
/// 32 pixels. Throws UserError.
void build_convnext(Builder& builder, const ModelConfig& config, const InputShape& input);

/// Vision transformers (Dosovitskiy et al., "An image is worth 16×16 words", 2020) as torchvision builds them.
/// vit_s_16 has the sizes of timm's ViT-S/16 (Touvron et al., "Training data-efficient image transformers", 2020).
/// Units: patch_embedding, encoder.layers.encoder_layer_0, …, encoder.ln, head. The position embedding has one
/// vector for each patch of `input`. Throws UserError if the image cannot be divided into patches.
void build_vit(Builder& builder, const ModelConfig& config, const InputShape& input);

/// GPT-2 (Radford et al. 2019), with Hugging Face's parameter names. Input: int64 tokens [batch, tokens], each in
/// [0, vocabulary), at most `context` a sample. Output: the logits of each next token [batch, tokens, vocabulary], or
/// their loss if ForwardContext::target is set. The last layer's weight is that of the embedding. In files, names may
/// lack "transformer.", buffers of causal masks are left out, and the last layer's weight may be there too.
void build_gpt2(Builder& builder, const ModelConfig& config, const InputShape& input);

}  // namespace trainopt
