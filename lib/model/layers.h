// The three layers of the networks here. The Model holds handles to the same tensors. Names and numerics are
// torch.nn's.
#pragma once

#include "model/unit.h"
#include "model/weight_copy.h"

namespace trainopt {

class Builder;
struct Operations;

/// Square kernel, no bias (batch-norm follows).
class Conv2d {
 public:
  struct Shape {
    int64_t in, out, kernel, stride = 1, padding = 0;
  };
  Conv2d(Builder& builder, const std::string& name, const Shape& shape);
  at::Tensor forward(const at::Tensor& input) const;
  SampleShape trace(const SampleShape& input, double& flops) const;

  at::Tensor weight;

 private:
  WeightCopy copy_;
  Shape shape_;
  std::shared_ptr<const Operations> operations_;
};

/// State only: BatchNormOperations computes with it, alone or fused with the operations that follow.
struct BatchNorm2d {
  static constexpr double kMomentum = 0.1, kEpsilon = 1e-5;
  BatchNorm2d(Builder& builder, const std::string& name, int64_t channels);

  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;
};

class Linear {
 public:
  Linear(Builder& builder, const std::string& name, int64_t in, int64_t out);
  at::Tensor forward(const at::Tensor& input) const;
  SampleShape trace(const SampleShape& input, double& flops) const;

  at::Tensor weight, bias;

 private:
  WeightCopy weight_copy_, bias_copy_;
};

}  // namespace trainopt
