// The first half of a transformer's MLP.
#pragma once

#include "model/layers.h"

namespace trainopt {

/// Hendrycks and Gimpel 2016. exact: x · Φ(x); tanh: their approximation of it, with which GPT-2 was trained.
enum class GeluForm { exact, tanh };

class GeluOperations {
 public:
  virtual ~GeluOperations() = default;
  /// gelu(linear(input)), over the last dimension.
  virtual at::Tensor linear_gelu(const at::Tensor& input, const Linear& linear, GeluForm form) const = 0;
};

/// ATen operations, one by one.
class PlainGeluOperations : public GeluOperations {
 public:
  at::Tensor linear_gelu(const at::Tensor& input, const Linear& linear, GeluForm form) const override;
};

}  // namespace trainopt
