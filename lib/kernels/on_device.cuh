// Machine primitives that kernels use, in CUDA. tests/support/cuda_on_host.h is the host counterpart for tests; a
// kernel's own header includes neither.
#pragma once

#include "kernels/dtype.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace trainopt::kernels {
namespace {

__device__ inline float wide(float number) { return number; }
__device__ inline float wide(BFloat16 number) { return __uint_as_float(static_cast<unsigned>(number.bits) << 16); }
__device__ inline float wide(Float16 number) { return __half2float(__ushort_as_half(number.bits)); }

// Rounded to nearest, ties to even; NaN stays NaN.
__device__ inline void narrow(float number, float& to) { to = number; }
__device__ inline void narrow(float number, BFloat16& to) {
  to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(number));
}
__device__ inline void narrow(float number, Float16& to) { to.bits = __half_as_ushort(__float2half_rn(number)); }

/// `from` must be a multiple of the pack's size.
template <class P>
__device__ inline P read(const void* from) {
  return *static_cast<const P*>(from);
}
template <class P>
__device__ inline void write(void* to, const P& pack) {
  *static_cast<P*>(to) = pack;
}

/// Memory shared by the threads of one block, uninitialised.
template <class T, int kCount>
__device__ T* shared_memory() {
  __shared__ T memory[kCount];
  return memory;
}

template <class... Parameters, class... Arguments>
void launch(void* queue, int64_t blocks, int threads, void (*kernel)(Parameters...), const Arguments&... arguments) {
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, static_cast<cudaStream_t>(queue)>>>(
      arguments...);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess)
    throw std::runtime_error(std::string("kernel launch failed: ") + cudaGetErrorString(error));
}

}  // namespace
}  // namespace trainopt::kernels
