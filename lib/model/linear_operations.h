// The product of a linear layer.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace trainopt {

/// What a linear layer computes with.
struct LinearTensors {
  at::Tensor weight;     ///< out × in: the parameter or its 16-bit copy
  at::Tensor bias;       ///< out: the parameter or its 16-bit copy; undefined: none is added
  at::Tensor parameter;  ///< the weight as the optimizer updates it: the same tensor in every call of one layer
};

class LinearOperations {
 public:
  virtual ~LinearOperations() = default;
  /// input · weightᵀ + bias, over the last dimension. `input`: … × in; returns … × out, under autocast in its type.
  virtual at::Tensor linear(const at::Tensor& input, const LinearTensors& layer) const = 0;
  /// The type of the fewest bits to which operands of the products, forward and backward, are rounded; null: they keep
  /// the type in which they are given.
  virtual std::optional<at::ScalarType> rounds_to() const { return std::nullopt; }
};

/// libtorch's.
class PlainLinearOperations : public LinearOperations {
 public:
  at::Tensor linear(const at::Tensor& input, const LinearTensors& layer) const override;
};

}  // namespace trainopt
