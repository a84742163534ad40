// Image finishing over raw memory. No libtorch and no CUDA in this header.
#pragma once

#include <cstdint>

namespace trainopt::kernels {

inline constexpr int kLevels = 256;  ///< number of values of a byte

namespace device {

/// Weights of one axis, for lines of shortest, shortest + 1, … samples: [lines, output], [lines, output] and [lines,
/// output, taps]. See ResizeWeights.
struct ResizedLines {
  const int32_t *first, *count, *coefficients;
  int32_t shortest, output, taps;
};

struct FinishOperands {
  const uint8_t* images;  ///< [n, image_height, image_width, 3]
  int64_t image_bytes;    ///< size of all images
  int32_t image_height, image_width;
  const int32_t* placement;  ///< [placement_rows, items], see placement_rows.h; null: item i is the whole of image i
  int64_t placement_rows;
  bool resizes;  ///< with `rows` and `columns`, before the window is cropped
  ResizedLines rows, columns;
  int64_t items;
  int32_t height, width;  ///< the output's size
  const void* levels;     ///< [3, 256]: the result for each level, by channel, as bits of the output's type
  int level_bytes;        ///< size of one level: 2 or 4
  bool interleaved;       ///< out is [items, height, width, 3], otherwise [items, 3, height, width]
  void* out;              ///< 16-byte aligned
};

class FinishLaunches {
 public:
  virtual ~FinishLaunches() = default;
  /// Queues the kernel and returns. `queue`: a cudaStream_t of the current device, which holds all the memory. Throws
  /// std::runtime_error if the launch fails.
  virtual void finish(const FinishOperands& operands, void* queue) const = 0;
};

/// nullptr without libtrainopt_cuda.so. Touches no GPU.
const FinishLaunches* cuda_finish_launches();

}  // namespace device
}  // namespace trainopt::kernels
