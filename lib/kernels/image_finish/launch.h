// Image finishing over bare memory: neither libtorch nor CUDA is seen here.
#pragma once

#include <cstdint>

namespace trainopt::kernels {

inline constexpr int kLevels = 256;  ///< that a byte has

namespace device {

/// Weights of one axis, for lines of shortest, shortest + 1, … samples: [lines, output], [lines, output] and [lines,
/// output, taps]. See ResizeWeights.
struct ResizedLines {
  const int32_t *first, *count, *coefficients;
  int32_t shortest, output, taps;
};

struct FinishOperands {
  const uint8_t* images;  ///< [n, image_height, image_width, 3]
  int32_t image_height, image_width;
  const int32_t* placement;  ///< [placement_rows, items], see placement_rows.h; null: image i is item i, whole
  int64_t placement_rows;
  bool resizes;  ///< by `rows` and `columns`, before the window is cut out
  ResizedLines rows, columns;
  int64_t items;
  int32_t height, width;  ///< of what comes out
  const void* levels;     ///< [3, 256]: what becomes of each grey level, by channel; bits of the output's type
  int level_bytes;        ///< of one of them: 2 or 4
  bool interleaved;       ///< out is [items, height, width, 3], otherwise [items, 3, height, width]
  void* out;              ///< at a multiple of 16 bytes
};

class FinishLaunches {
 public:
  virtual ~FinishLaunches() = default;
  /// Queues it and returns. `queue`: a cudaStream_t of the current device, where all memory is. Throws
  /// std::runtime_error if the kernel cannot start.
  virtual void finish(const FinishOperands& operands, void* queue) const = 0;
};

/// nullptr in builds without CUDA. Touches no GPU.
const FinishLaunches* cuda_finish_launches();

}  // namespace device
}  // namespace trainopt::kernels
