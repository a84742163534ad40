// Finds the layers in a program that optimizations replace: convolutions, batch-norms, linear layers and so on, as the
// networks here have them. One node then stands for the operations of each layer, and runs through its slot.
#pragma once

#include "model/imported/layer_view.h"

#include <map>
#include <string>
#include <string_view>

namespace trainopt {

// Targets of the nodes that stand for layers, and the names of their inputs. `written`: a graph of the nodes that the
// layer stands for. They run instead if the slot is plain, so that a program without switches computes what was saved;
// each other value that they take is an input without a name.
inline constexpr std::string_view kConvolutionLayer = "layer.convolution",  // input, weight, bias if it has one,
                                                                            // stride, padding, groups
    kLinearLayer = "layer.linear",           // input, weight, bias if it has one; transposed: the weight is in × out
    kLinearGeluLayer = "layer.linear_gelu",  // as linear, approximate; written with is_cast
    kHeadLayer = "layer.head",               // as linear; pools and flattens first
    kAttentionLayer = "layer.attention",     // query, key, value, is_causal, dropout_p, key_is_transposed, sharing;
                                             // written, is_libtorchs if that is scaled_dot_product_attention
    kLayerNormLayer = "layer.layer_norm",    // input, weight, bias, eps, is_cast
    kAddLayerNormLayer = "layer.add_layer_norm",  // residual, branch, weight, bias, eps, is_cast
    kBatchNormLayer = "layer.batch_norm";  // input, weight, bias, running_mean, running_var, count, momentum, eps; then
                                           // residual, relu, pool, where these follow

/// What became of the layers of one kind.
struct FoundLayers {
  int64_t found = 0;
  std::map<std::string, int64_t> left;  ///< how many stay as they are, by the reason: "they are dilated"
};

/// Replaces the nodes of each layer that is found by one. Returns by kind ("convolutions") what was found.
std::map<std::string, FoundLayers> find_layers(ProgramNodes& nodes, const LayerSearch& search);

}  // namespace trainopt
