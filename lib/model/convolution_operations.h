// The operation of convolution layers.
#pragma once

#include "model/layers.h"

namespace trainopt {

/// Convolutions and their gradients. `input`: batch × channels × height × width. Thread-safe.
class ConvolutionOperations {
 public:
  virtual ~ConvolutionOperations() = default;
  /// Whether this implementation computes the convolution itself rather than with libtorch, judging by shapes, types,
  /// device and autocast. A wrapper calls it to leave such convolutions to the part it wraps.
  virtual bool supports(const Conv2d::Shape&, const at::Tensor& /*input*/) const { return false; }
  /// The result has autocast's type if autocast is on, otherwise the input's. `weight`: the parameter, or its 16-bit
  /// copy if there is one. Double backward may be unsupported.
  virtual at::Tensor forward(const Conv2d::Shape& shape, const at::Tensor& input, const at::Tensor& weight) const = 0;
};

/// libtorch's convolution.
class PlainConvolutionOperations : public ConvolutionOperations {
 public:
  at::Tensor forward(const Conv2d::Shape& shape, const at::Tensor& input, const at::Tensor& weight) const override;
};

}  // namespace trainopt
