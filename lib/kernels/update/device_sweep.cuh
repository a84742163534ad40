// How the threads of a block go through the values of its part of a parameter.
#pragma once

#include "kernels/update/table.h"

namespace trainopt::kernels::update {
namespace {

/// The values of one part that a block processes.
struct BlockRange {
  Part part;
  int64_t begin, end;
};
__device__ inline BlockRange range_of(const Table& table) {
  const auto block = static_cast<int32_t>(blockIdx.x);
  int low = 0, high = table.count;  // the part is in [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table.first_block[middle] <= block)
      low = middle;
    else
      high = middle;
  }
  const int64_t begin = (block - table.first_block[low]) * kChunk, size = table.parts[low].size;
  return {table.parts[low], begin, begin + kChunk < size ? begin + kChunk : size};
}

__device__ inline bool begins_packs(const float* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % (kPack * sizeof(float)) == 0;
}
__device__ inline bool begins_packs_of_16_bits(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % (kPack * sizeof(uint16_t)) == 0;
}

/// Calls body.load<kWidth>(at) for kAhead positions of a thread, then body.use(at, loaded) for each, so that many reads
/// are in flight at once.
template <int kWidth, int kAhead, class Body>
__device__ inline void sweep(const Body& body, int64_t begin, int64_t end) {
  constexpr int64_t kStride = static_cast<int64_t>(kThreads) * kWidth;
  for (int64_t first = begin + static_cast<int64_t>(threadIdx.x) * kWidth; first < end; first += kAhead * kStride) {
    decltype(body.template load<kWidth>(0)) ahead[kAhead];
    for (int k = 0; k < kAhead; ++k)
      // Past the end: reads the first again and does not use it.
      ahead[k] = body.template load<kWidth>(first + k * kStride < end ? first + k * kStride : first);
    for (int k = 0; k < kAhead; ++k)
      if (first + k * kStride < end) body.use(first + k * kStride, ahead[k]);
  }
}
/// Sweeps all values of a range, in packs if memory is aligned.
template <class Body>
__device__ inline void sweep_range(const Body& body, const BlockRange& range, bool packs) {
  constexpr int kAhead = 2;
  const int64_t packed_end = packs ? range.end - (range.end - range.begin) % kPack : range.begin;
  sweep<kPack, kAhead>(body, range.begin, packed_end);
  sweep<1, kAhead>(body, packed_end, range.end);
}

template <int kWidth>
using Floats = Pack<float, kWidth>;

__device__ inline bool skips(const UpdateInputs& inputs) {
  return inputs.skip_update != nullptr && *inputs.skip_update > 0;
}
__device__ inline float factor_of(const UpdateInputs& inputs) { return inputs.factor == nullptr ? 1 : *inputs.factor; }

}  // namespace
}  // namespace trainopt::kernels::update
