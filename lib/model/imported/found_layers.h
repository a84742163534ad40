// Finds the layers in a program that optimizations replace: convolutions, batch-norms, linear layers and so on, as the
// networks here have them. One node then stands for the operations of each layer, and runs through its slot.
#pragma once

#include "model/imported/aliases.h"
#include "model/imported/division.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

// Targets of the nodes that stand for layers, and the names of their inputs.
inline constexpr std::string_view kConvolutionLayer = "layer.convolution",  // input, weight, stride, padding, groups
    kLinearLayer = "layer.linear",                                          // input, weight, bias if it has one
    kLinearGeluLayer = "layer.linear_gelu",                                 // input, weight, bias, approximate
    kHeadLayer = "layer.head",                                              // as linear; pools and flattens first
    kAttentionLayer = "layer.attention",                                    // query, key, value, is_causal, dropout_p
    kLayerNormLayer = "layer.layer_norm",                                   // input, weight, bias, eps, is_cast
    kAddLayerNormLayer = "layer.add_layer_norm",  // residual, branch, weight, bias, eps, is_cast
    kBatchNormLayer = "layer.batch_norm";  // input, weight, bias, running_mean, running_var, count, momentum, eps; then
                                           // residual, relu, pool, where these follow

/// A program's nodes; null where one is left out.
using ProgramNodes = std::vector<std::optional<ProgramNode>>;

struct LayerSearch {
  const ProgramGraph& graph;
  const AliasSets& aliases;
  const std::map<int64_t, std::string>& names;  ///< parameters, buffers and constants, by the value's index
  const std::vector<NodeRange>& units;          ///< a layer lies within one
  bool training = true;                         ///< whether the nodes are those of training
};

/// What became of the layers of one kind.
struct FoundLayers {
  int64_t found = 0;
  std::map<std::string, int64_t> left;  ///< how many stay as they are, by the reason: "they have a bias"
};

/// Replaces the nodes of each layer that is found by one. Returns by kind ("convolutions") what was found.
std::map<std::string, FoundLayers> find_layers(ProgramNodes& nodes, const LayerSearch& search);

}  // namespace trainopt
