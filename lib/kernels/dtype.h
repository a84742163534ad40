// Numbers as they lie in the memory that a kernel reads and writes. What turns them into floats and back is of the
// machine: on_device.cuh.
#pragma once

#include <cstdint>

namespace trainopt::kernels {

enum class DType { float32, bfloat16, float16 };

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

/// Neighbours in memory, read and written at once: 16 bytes of samples.
template <class T, int kWidth>
struct alignas(kWidth * sizeof(T) < 16 ? kWidth * sizeof(T) : 16) Pack {
  T values[kWidth];
};

/// As many as are 16 bytes.
template <class T>
inline constexpr int kWhole = 16 / static_cast<int>(sizeof(T));

}  // namespace trainopt::kernels
