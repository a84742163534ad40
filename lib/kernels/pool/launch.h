// The passes of PoolKernels over raw memory, as GPU kernels run them. No libtorch and no CUDA in this header.
#pragma once

#include "kernels/norm/launch.h"

namespace trainopt::kernels::device {

/// Output shape of a 3×3 max-pool with stride 2 and padding 1.
constexpr Shape pooled(const Shape& x) { return {x.images, (x.height + 1) / 2, (x.width + 1) / 2, x.channels}; }

struct PoolOperands : NormOperands {
  const uint8_t* positions = nullptr;  ///< has the shape of the pool's gradient
  uint8_t* positions_out = nullptr;
  void* chosen_out = nullptr;  ///< samples, of the shape of the pool's values
};

/// Each call queues kernels and returns. Throws std::runtime_error if a launch fails.
class PoolLaunches {
 public:
  virtual ~PoolLaunches() = default;

  /// Number of floats of work space that coefficients() needs for these operands.
  virtual int64_t partials(const PoolOperands& o) const = 0;
  /// Writes out, positions_out and chosen_out: the max-pool of ReLU(scale · x + shift).
  virtual void pool(const PoolOperands& o, void* queue) const = 0;
  /// x is `chosen` of the pool, and g = gradient where there is a position.
  virtual void coefficients(const PoolOperands& o, const CoefficientOperands& results, void* queue) const = 0;
  /// out = scale · g + of_x · x + rest; g = gradient at the positions that the pooled values came from.
  virtual void input_gradient(const PoolOperands& o, void* queue) const = 0;
};

/// nullptr without libtrainopt_cuda.so. Touches no GPU.
const PoolLaunches* cuda_pool_launches();

}  // namespace trainopt::kernels::device
