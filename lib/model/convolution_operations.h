// What convolution layers compute with.
#pragma once

#include "model/layers.h"

namespace trainopt {

/// Convolutions with their gradients. `input`: batch × channels × height × width. Any thread may call.
class ConvolutionOperations {
 public:
  virtual ~ConvolutionOperations() = default;
  /// Whether this one is computed in a way of its own rather than by libtorch's convolution, by what is known before:
  /// shapes, types, device, autocast. A part that wraps another asks, and leaves such a convolution to it.
  virtual bool takes(const Conv2d::Shape&, const at::Tensor& /*input*/) const { return false; }
  /// Of autocast's type where autocast is on, otherwise of the input's. `weight`: the parameter, or its 16-bit copy
  /// where there is one. Double backward may be unsupported.
  virtual at::Tensor forward(const Conv2d::Shape& shape, const at::Tensor& input, const at::Tensor& weight) const = 0;
};

/// libtorch's.
class PlainConvolutionOperations : public ConvolutionOperations {
 public:
  at::Tensor forward(const Conv2d::Shape& shape, const at::Tensor& input, const at::Tensor& weight) const override;
};

}  // namespace trainopt
