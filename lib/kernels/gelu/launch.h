// The passes of GeluKernels over raw memory, as GPU kernels run them. No libtorch and no CUDA in this header.
#pragma once

#include "kernels/dtype.h"

#include <cstdint>

namespace trainopt::kernels::device {

/// rows × width of `dtype`, with fewer than 2³¹ rows. `out`: the result of forward, or the gradient of x.
struct GeluOperands {
  DType dtype;
  bool tanh;
  int64_t rows, width;
  const void *x, *gradient;  ///< forward has no gradient
  const float* bias;
  void* out;
};
struct GeluSums {
  float* of_bias;
  float* partials;  ///< work space for partials() floats
};

/// Each call queues kernels and returns. Throws std::runtime_error if a launch fails.
class GeluLaunches {
 public:
  virtual ~GeluLaunches() = default;
  /// Number of floats of work space that backward() needs for these operands.
  virtual int64_t partials(const GeluOperands& o) const = 0;
  virtual void forward(const GeluOperands& o, void* queue) const = 0;
  virtual void backward(const GeluOperands& o, const GeluSums& sums, void* queue) const = 0;
};

/// nullptr without libtrainopt_cuda.so. Touches no GPU.
const GeluLaunches* cuda_gelu_launches();

}  // namespace trainopt::kernels::device
