// Dispatch to loops by the type of a tensor and by the vector width of this CPU.
#pragma once

#include "base/error.h"

#include <ATen/Version.h>
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
/// Calls work(type) with a value of the tensor's element type.
template <class F>
auto by_type(const at::Tensor& x, const F& work) {
  return by_type(x.scalar_type(), work);
}

/// Whether this CPU has the instructions that the AVX-512 files are compiled for, and ATEN_CPU_CAPABILITY, which limits
/// libtorch's own kernels, does not forbid them.
inline bool has_avx512() {
  const std::string allowed = at::get_cpu_capability();
  return allowed != "DEFAULT" && allowed != "AVX2" && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
/// Whether this CPU also has the instructions of the files for products of bfloat16.
inline bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }

}  // namespace trainopt::kernels
