// The passes of LayerNormKernels over raw memory, as GPU kernels run them. No libtorch and no CUDA in this header.
#pragma once

#include "kernels/dtype.h"

#include <cstdint>

namespace trainopt::kernels::device {

/// rows × width samples; null if there are none.
struct Samples {
  DType dtype = DType::float32;
  void* memory = nullptr;
};
/// rows × width samples that are only read; null if there are none.
struct ConstSamples {
  DType dtype = DType::float32;
  const void* memory = nullptr;
};

/// Fewer than 2³¹ rows.
struct LayerNormOperands {
  int64_t rows, width;
  ConstSamples residual, branch;
  Samples sum;  ///< none without a branch: then it is the residual
  Samples normalized;
  const float *weight, *bias;
  float *mean, *rstd;
  float epsilon;
};
struct LayerNormGradientOperands {
  int64_t rows, width;
  ConstSamples of_normalized, of_sum, sum;
  const float *mean, *rstd, *weight;
  Samples of_residual, of_branch;  ///< the gradient of the sum, in one or two types
  float *of_weight, *of_bias;
  float* partials = nullptr;  ///< work space for partials() floats
};

/// Each call queues kernels and returns. Throws std::runtime_error if a launch fails.
class LayerNormLaunches {
 public:
  virtual ~LayerNormLaunches() = default;
  virtual void forward(const LayerNormOperands& o, void* queue) const = 0;
  /// Number of floats of work space that backward() needs for these operands.
  virtual int64_t partials(const LayerNormGradientOperands& o) const = 0;
  virtual void backward(const LayerNormGradientOperands& o, void* queue) const = 0;
};

/// nullptr without libtrainopt_cuda.so. Touches no GPU.
const LayerNormLaunches* cuda_layer_norm_launches();

}  // namespace trainopt::kernels::device
