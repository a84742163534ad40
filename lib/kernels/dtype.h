// Number types as stored in the memory that kernels read and write. Conversion to and from float depends on the
// machine: see on_device.cuh.
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

/// Consecutive samples that are read or written in one access: at most 16 bytes at a time.
template <class T, int kWidth>
struct alignas(kWidth * sizeof(T) < 16 ? kWidth * sizeof(T) : 16) Pack {
  T values[kWidth];
};

/// How many values of type T fill 16 bytes.
template <class T>
inline constexpr int kPackWidth = 16 / static_cast<int>(sizeof(T));

}  // namespace trainopt::kernels
