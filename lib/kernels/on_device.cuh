// Machine primitives that kernels use, in CUDA. tests/support/cuda_on_host.h is the host counterpart for tests; a
// kernel's own header includes neither.
#pragma once

#include "kernels/dtype.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

/// Before a loop over an array that must stay in registers, and before one whose copies would only make a kernel
/// longer.
#define TRAINOPT_UNROLL _Pragma("unroll")
#define TRAINOPT_NO_UNROLL _Pragma("unroll 1")

namespace trainopt::kernels {
namespace {

__device__ inline float wide(float number) { return number; }
__device__ inline float wide(BFloat16 number) { return __uint_as_float(static_cast<unsigned>(number.bits) << 16); }
__device__ inline float wide(Float16 number) { return __half2float(__ushort_as_half(number.bits)); }

/// −number if `of` is negative, otherwise `number`.
__device__ inline float with_sign_of(float of, float number) {
  return __uint_as_float(__float_as_uint(number) ^ (__float_as_uint(of) & 0x80000000u));
}

/// 2^x with a relative error of 2^-22; 0 below 2^-126.
__device__ inline float fast_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// 1 / x with an error of one unit in the last place; 0 beyond 2^126.
__device__ inline float fast_reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// The low word of two words shifted right by `bits`, less than 32.
__device__ inline uint32_t words_shifted(uint32_t low, uint32_t high, unsigned bits) {
  return __funnelshift_r(low, high, bits);
}

// Rounded to nearest, ties to even; NaN stays NaN.
__device__ inline void narrow(float number, float& to) { to = number; }
__device__ inline void narrow(float number, BFloat16& to) {
  to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(number));
}
__device__ inline void narrow(float number, Float16& to) { to.bits = __half_as_ushort(__float2half_rn(number)); }

/// Two bfloat16 in a word take one instruction each.
template <int kWidth>
__device__ inline Pack<float, kWidth> widened(const Pack<BFloat16, kWidth>& pack) {
  Pack<float, kWidth> floats;
  if constexpr (kWidth % 2 == 0) {
    unsigned words[kWidth / 2];
    memcpy(words, &pack, sizeof(pack));
    TRAINOPT_UNROLL
    for (int i = 0; i < kWidth; ++i)
      floats.values[i] = __uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000u);
  } else {
    for (int i = 0; i < kWidth; ++i) floats.values[i] = wide(pack.values[i]);
  }
  return floats;
}
template <class T, int kWidth>
__device__ inline Pack<float, kWidth> widened(const Pack<T, kWidth>& pack) {
  Pack<float, kWidth> floats;
  TRAINOPT_UNROLL
  for (int i = 0; i < kWidth; ++i) floats.values[i] = wide(pack.values[i]);
  return floats;
}

/// Accesses to memory of a P.
template <class P>
struct Access {
  static constexpr int kBytes = sizeof(P) % 16 == 0 ? 16 : sizeof(P);
  using Unit = std::conditional_t<kBytes == 16, uint4, std::conditional_t<kBytes == 8, uint2, P>>;
  static constexpr int kCount = sizeof(P) / sizeof(Unit);
};

/// `from` must be a multiple of the pack's size.
template <class P>
__device__ inline P read(const void* from) {
  typename Access<P>::Unit units[Access<P>::kCount];
  TRAINOPT_UNROLL
  for (int i = 0; i < Access<P>::kCount; ++i) units[i] = static_cast<const typename Access<P>::Unit*>(from)[i];
  P pack;
  memcpy(&pack, units, sizeof(P));
  return pack;
}

/// From global memory that nothing writes during the kernel.
template <class T>
__device__ inline T read_constant(const T* from) {
  return __ldg(from);
}

// In assembly, because the compiler sometimes splits a store of several words.
__device__ inline void store_unit(uint4* to, const uint4& unit) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(unit.x), "r"(unit.y), "r"(unit.z), "r"(unit.w)
               : "memory");
}
__device__ inline void store_unit(uint2* to, const uint2& unit) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(unit.x), "r"(unit.y) : "memory");
}
template <class P>
__device__ inline void store_unit(P* to, const P& unit) {
  *to = unit;
}
/// To global memory. `to` must be a multiple of the pack's size.
template <class P>
__device__ inline void write(void* to, const P& pack) {
  typename Access<P>::Unit units[Access<P>::kCount];
  memcpy(units, &pack, sizeof(P));
  TRAINOPT_UNROLL
  for (int i = 0; i < Access<P>::kCount; ++i) store_unit(static_cast<typename Access<P>::Unit*>(to) + i, units[i]);
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
