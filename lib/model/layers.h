// The layers of the networks here. The Model holds handles to the same tensors. Names and numerics are
// torch.nn's.
#pragma once

#include "model/initial_values.h"
#include "model/unit.h"
#include "model/weights_file.h"

namespace trainopt {

class Builder;
struct Operations;

/// Square kernel, no bias.
class Conv2d {
 public:
  struct Shape {
    int64_t in, out, kernel, stride = 1, padding = 0;
    int64_t groups = 1;  ///< parts of the channels, each computed from its own part of the input
  };
  /// With torchvision's initial values for convolutions that batch-norm follows.
  Conv2d(Builder& builder, const std::string& name, const Shape& shape);
  Conv2d(Builder& builder, const std::string& name, const Shape& shape, const InitialValues& values);
  at::Tensor forward(const at::Tensor& input) const;
  SampleShape shape_after(const SampleShape& input, double& flops) const;

  at::Tensor weight;

 private:
  WeightCopy copy_;
  Shape shape_;
  std::shared_ptr<const Operations> operations_;
};

/// State only: BatchNormOperations computes with it, alone or fused with the operations that follow.
struct BatchNorm2d {
  BatchNorm2d() = default;
  BatchNorm2d(Builder& builder, const std::string& name, int64_t channels);

  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;
  double momentum = 0.1;  ///< the share of a batch's statistics in the running ones
  double epsilon = 1e-5;  ///< added to the variance
};

/// State only, vectors of `width` values: LayerNormOperations computes with it.
struct LayerNorm {
  LayerNorm() = default;
  LayerNorm(Builder& builder, const std::string& name, int64_t width, double epsilon_);

  at::Tensor weight, bias;
  double epsilon = 1e-5;  ///< added to the variance
};

/// Over the last dimension.
class Linear {
 public:
  struct Values {
    InitialValues weight, bias;
  };
  /// The parameters have torch's default initial values.
  Linear(Builder& builder, const std::string& name, int64_t in, int64_t out);
  /// The parameters' names are `prefix` + "weight" and `prefix` + "bias".
  Linear(Builder& builder, const std::string& prefix, int64_t in, int64_t out, const Values& values);
  /// A layer of known tensors. `bias` may be undefined; no copy is null.
  struct Tensors {
    at::Tensor weight, bias;
    WeightCopy weight_copy, bias_copy;
    bool transposed = false;  ///< `weight` is in × out
  };
  Linear(Tensors tensors, std::shared_ptr<const Operations> operations);
  at::Tensor forward(const at::Tensor& input) const;
  /// forward() without the bias.
  at::Tensor product(const at::Tensor& input) const;
  SampleShape shape_after(const SampleShape& input, double& flops) const;

  at::Tensor weight, bias;
  bool transposed = false;  ///< `weight` is in × out, as the program has it

 private:
  at::Tensor matrix() const;  ///< out × in, in autocast's type

  WeightCopy weight_copy_, bias_copy_;
  std::shared_ptr<const Operations> operations_;
};

// Dropout that draws from the trainer's generator.

/// torch's dropout: in training, sets each value to 0 with the probability `rate`, and divides the
/// others by 1 - rate. Otherwise, and at rate 0, returns `input`.
at::Tensor dropout(const at::Tensor& input, double rate, const ForwardContext& context);

}  // namespace trainopt
