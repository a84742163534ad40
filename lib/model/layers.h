// The three layers our networks are made of. Their tensors are handles that the Model lists too; their names and
// numerics are torch.nn's.
#pragma once

#include "model/unit.h"
#include "model/weight_copy.h"

namespace trainopt {

class Builder;
struct Implementations;

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
  std::shared_ptr<const Implementations> implementations_;
};

/// Another way to compute some convolutions, with their gradients. `input`: batch × channels × height × width. Any
/// thread may call.
class ConvolutionKernel {
 public:
  virtual ~ConvolutionKernel() = default;
  /// Whether it computes this one, by what is known before: shapes, types, device, autocast.
  virtual bool takes(const Conv2d::Shape& shape, const at::Tensor& input) const = 0;
  /// Of one that it takes: of autocast's type where autocast is on, otherwise of the input's. `weight`: the parameter,
  /// or its 16-bit copy where there is one. Gradients of gradients are not to be had.
  virtual at::Tensor forward(const Conv2d::Shape& shape, const at::Tensor& input, const at::Tensor& weight) const = 0;
};

/// Only state: BlockOperations computes with it, alone or fused with what follows.
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
