// What the classification head of a convolutional network computes with.
#pragma once

#include "model/layers.h"

namespace trainopt {

class HeadOperations {
 public:
  virtual ~HeadOperations() = default;
  /// linear(mean over height and width). `input`: batch × channels × height × width; gives batch × classes.
  virtual at::Tensor head(const at::Tensor& input, const Linear& linear, const ForwardContext& context) const = 0;
};

/// What torchvision computes, operation by operation.
class PlainHeadOperations : public HeadOperations {
 public:
  at::Tensor head(const at::Tensor& input, const Linear& linear, const ForwardContext& context) const override;
};

}  // namespace trainopt
