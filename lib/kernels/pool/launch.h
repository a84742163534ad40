// The passes of PoolKernels over bare memory, as a GPU's kernels run them. No libtorch and no CUDA in this header.
#pragma once

#include "kernels/norm/launch.h"

namespace trainopt::kernels::device {

/// Of a max-pool 3×3 with stride 2 and padding 1.
constexpr Shape pooled(const Shape& x) { return {x.images, (x.height + 1) / 2, (x.width + 1) / 2, x.channels}; }

struct PoolOperands : NormOperands {
  const uint8_t* positions = nullptr;  ///< shaped as the pool's gradient
  uint8_t* positions_out = nullptr;
  void* chosen_out = nullptr;  ///< samples, shaped as the pool's values
};

/// Each call queues kernels and returns. Throws std::runtime_error if one cannot start.
class PoolLaunches {
 public:
  virtual ~PoolLaunches() = default;

  /// Floats of work space that sums() needs for these operands.
  virtual int64_t partials(const PoolOperands& o) const = 0;
  /// out, positions_out and chosen_out: max-pool of ReLU(scale · x + shift).
  virtual void pool(const PoolOperands& o, void* queue) const = 0;
  /// x: what the pool chose. Σ g and Σ g · (x − mean), with g = gradient where there is a position: `first`, `second`.
  virtual void sums(const PoolOperands& o, void* queue) const = 0;
  /// out = of_gradient · g + of_x · x + rest, with g = gradient at the positions that the values came from.
  virtual void input_gradient(const PoolOperands& o, void* queue) const = 0;
};

/// nullptr in builds without CUDA. Touches no GPU.
const PoolLaunches* cuda_pool_launches();

}  // namespace trainopt::kernels::device
