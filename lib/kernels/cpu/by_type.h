// Dispatch to loops by the type of a tensor and by the vector width of this CPU.
#pragma once

#include "base/error.h"

#include <ATen/core/Tensor.h>

namespace trainopt::kernels {

/// Calls work(type) with a value of this type.
template <class F>
auto by_type(at::ScalarType type, const F& work) {
  switch (type) {
    case at::kFloat:
      return work(float());
    case at::kBFloat16:
      return work(c10::BFloat16());
    case at::kHalf:
      return work(c10::Half());
    default:
      throw BrokenInvariant("kernels support only float32, bfloat16 and float16");
  }
}
/// The same with the tensor's element type.
template <class F>
auto by_type(const at::Tensor& x, const F& work) {
  return by_type(x.scalar_type(), work);
}

/// Whether this CPU has the instructions that the AVX-512 files are compiled for.
inline bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

}  // namespace trainopt::kernels
