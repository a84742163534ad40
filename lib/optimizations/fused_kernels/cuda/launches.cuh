// How a pass becomes launches: which type and width, on how many blocks. Include on_device.cuh or its twin for the host
// first.
#pragma once

#include "optimizations/fused_kernels/cuda/kernels.cuh"

#include <initializer_list>

namespace trainopt::fused_kernels::cuda {
namespace {

template <int kChannels>
struct Width {
  static constexpr int value = kChannels;
};

/// Calls with(a sample's type, Width<as many as are read at once>): 16 bytes where rows of `channels` are whole packs
/// and nothing of `memory` (null counts) begins between two.
template <class F>
auto by_type(DType dtype, int64_t channels, std::initializer_list<const void*> memory, const F& with) {
  uintptr_t bits = 0;
  for (const void* pointer : memory) bits |= reinterpret_cast<uintptr_t>(pointer);
  const auto by_width = [&](auto type) {
    constexpr int kWidth = kWhole<decltype(type)>;
    return channels % kWidth == 0 && bits % 16 == 0 ? with(type, Width<kWidth>()) : with(type, Width<1>());
  };
  switch (dtype) {
    case DType::bfloat16:
      return by_width(BFloat16());
    case DType::float16:
      return by_width(Float16());
    default:
      return by_width(float());
  }
}

template <class T>
const T* samples(const void* pointer) {
  return static_cast<const T*>(pointer);
}

template <class Body>
void launch_map(const Body& body, int64_t rows, int64_t channels, void* queue) {
  const Tiling tiling = tiling_of(rows, channels, Body::kWidth);
  launch(queue, tiling.blocks(), kThreads, map<Body>, body, tiling);
}

}  // namespace
}  // namespace trainopt::fused_kernels::cuda
