// The operation of a convolutional network's classification head.
#pragma once

#include "model/layers.h"

namespace trainopt {

class HeadOperations {
 public:
  virtual ~HeadOperations() = default;
  /// linear(mean over height and width). `input`: batch × channels × height × width; returns batch × classes.
  virtual at::Tensor head(const at::Tensor& input, const Linear& linear, const ForwardContext& context) const = 0;
};

/// The ATen operations that torchvision uses, one by one.
class PlainHeadOperations : public HeadOperations {
 public:
  at::Tensor head(const at::Tensor& input, const Linear& linear, const ForwardContext& context) const override;
};

}  // namespace trainopt
