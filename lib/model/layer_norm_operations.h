// Layer norm, alone or with the addition before it in a transformer's blocks.
#pragma once

#include "model/layers.h"

namespace trainopt {

/// A residual stream and its normalised values, both of the residual's shape.
struct NormalisedSum {
  at::Tensor sum, normalised;
};

/// Over the last dimension. Inputs are not overwritten.
class LayerNormOperations {
 public:
  virtual ~LayerNormOperations() = default;
  /// The result may have autocast's type, if autocast is on, or the input's.
  virtual at::Tensor layer_norm(const at::Tensor& input, const LayerNorm& norm) const = 0;
  /// residual + branch, and layer_norm() of that.
  virtual NormalisedSum add_layer_norm(const at::Tensor& residual, const at::Tensor& branch,
                                       const LayerNorm& norm) const = 0;
};

/// ATen operations, one by one.
class PlainLayerNormOperations : public LayerNormOperations {
 public:
  at::Tensor layer_norm(const at::Tensor& input, const LayerNorm& norm) const override;
  NormalisedSum add_layer_norm(const at::Tensor& residual, const at::Tensor& branch,
                               const LayerNorm& norm) const override;
};

}  // namespace trainopt
