// The kernel templates of a pass and their launches. A grid of blocks sweeps rows and computes two sums per channel
// (reduce, then fold) or one result per row (map). Include on_device.cuh or its host counterpart first.
#pragma once

#include "kernels/dtype.h"
#include "kernels/tiling.h"

#include <initializer_list>

namespace trainopt::kernels::device {

namespace {

template <int kWidth>
using Floats = Pack<float, kWidth>;

template <int kWidth, class T>
__device__ inline Pack<T, kWidth> load(const T* from) {
  return read<Pack<T, kWidth>>(from);
}
template <int kWidth, class T>
__device__ inline Floats<kWidth> load_wide(const T* from) {
  return widened(load<kWidth>(from));
}
template <class T, int kWidth>
__device__ inline void store(T* to, const Floats<kWidth>& floats) {
  Pack<T, kWidth> packed;
  for (int i = 0; i < kWidth; ++i) narrow(floats.values[i], packed.values[i]);
  write(to, packed);
}

/// A thread's first channel, its stripe, and its row among the rows that its block processes at once.
struct ThreadPosition {
  int64_t channel;
  int stripe, row;
};
__device__ inline ThreadPosition thread_position(const Tiling& tiling, int width) {
  const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  // Adjacent blocks take the tiles of one stripe, so they read adjacent memory.
  return {(static_cast<int64_t>(block % tiling.tiles) * tiling.lanes + thread % tiling.lanes) * width,
          block / tiling.tiles, thread / tiling.lanes};
}

/// A thread's channels of one row: the row, the first channel, and their offset in memory of the rows' shape.
struct RowPosition {
  int64_t row, channel, at;
};

/// Calls use(position, ahead) for each row of a thread; `ahead` is the result of load(position). kAhead rows are loaded
/// before the first of them is used, so that many reads are in flight at once. `down` sweeps from the last chunk to the
/// first: the rows that the previous pass read last may still be in the cache.
template <int kAhead, class Load, class Use>
__device__ inline void sweep(const Tiling& tiling, const ThreadPosition& position, bool down, const Load& load_row,
                             const Use& use) {
  // There are fewer than 2³¹ rows, which the callers check.
  const auto at_once = static_cast<uint32_t>(tiling.rows_at_once()), rows = static_cast<uint32_t>(tiling.rows),
             chunks = static_cast<uint32_t>(tiling.chunks);
  for (auto i = static_cast<uint32_t>(position.stripe); i < chunks; i += static_cast<uint32_t>(tiling.stripes)) {
    const uint32_t begin = (down ? chunks - 1 - i : i) * at_once * kRowsPerThread + static_cast<uint32_t>(position.row);
    const auto row_position = [&](uint32_t turn) {
      const uint32_t row = begin + turn * at_once,
                     inside = row < rows ? row : rows - 1;  // past the end: read, not used
      return RowPosition{inside, position.channel, inside * tiling.channels + position.channel};
    };
    for (uint32_t turn = 0; turn < kRowsPerThread; turn += kAhead) {
      decltype(load_row(RowPosition())) ahead[kAhead];
      TRAINOPT_UNROLL
      for (uint32_t k = 0; k < kAhead; ++k) ahead[k] = load_row(row_position(turn + k));
      TRAINOPT_UNROLL
      for (uint32_t k = 0; k < kAhead; ++k)
        if (begin + (turn + k) * at_once < rows) use(row_position(turn + k), ahead[k]);
    }
  }
}

/// The constants of a body that needs no per-channel values.
struct NoConstants {};

/// Blocks that must fit on a multiprocessor: three leave 80 registers a thread, two leave 128. Bodies that read many
/// packs per row or hold many per-channel values need 128.
template <class Body>
inline constexpr int kResident = Body::kAhead == 1 || sizeof(Body().constants(0)) > 128 ? 2 : 3;

/// Calls Body::use(constants, position, ahead) for all rows. `constants` are per channel and read once per thread.
template <class Body>
__global__ void __launch_bounds__(kThreads, kResident<Body>) map(Body body, Tiling tiling) {
  const ThreadPosition position = thread_position(tiling, Body::kWidth);
  if (position.channel >= tiling.channels) return;
  const auto constants = body.constants(position.channel);
  sweep<Body::kAhead>(
      tiling, position, true, [&](const RowPosition& pos) { return body.load(pos); },
      [&](const RowPosition& pos, const auto& ahead) { body.use(constants, pos, ahead); });
}

/// Calls Body::add(constants, position, ahead, sum, other) for all rows, then sums over the block's threads:
/// partials[stripe][sum or other][channel].
template <class Body>
__global__ void __launch_bounds__(kThreads, kResident<Body>) reduce(Body body, Tiling tiling, float* partials) {
  constexpr int kWidth = Body::kWidth;
  const ThreadPosition position = thread_position(tiling, kWidth);
  Floats<kWidth> sum{}, other{};
  if (position.channel < tiling.channels) {
    const auto constants = body.constants(position.channel);
    sweep<Body::kAhead>(
        tiling, position, false, [&](const RowPosition& pos) { return body.load(pos); },
        [&](const RowPosition& pos, const auto& ahead) { body.add(constants, pos, ahead, sum, other); });
  }
  const int thread = static_cast<int>(threadIdx.x);
  float* mine = shared_memory<float, 2 * kWidth * kThreads>() + thread;
  for (int i = 0; i < kWidth; ++i) {
    mine[i * kThreads] = sum.values[i];
    mine[(kWidth + i) * kThreads] = other.values[i];
  }
  for (int half = kThreads / 2; half >= tiling.lanes; half /= 2) {
    __syncthreads();
    if (thread < half)
      for (int i = 0; i < 2 * kWidth; ++i) mine[i * kThreads] += mine[i * kThreads + half];
  }
  if (thread >= tiling.lanes || position.channel >= tiling.channels) return;
  float* to = partials + 2 * position.stripe * tiling.channels + position.channel;
  for (int i = 0; i < kWidth; ++i) {
    to[i] = mine[i * kThreads];
    to[tiling.channels + i] = mine[(kWidth + i) * kThreads];
  }
}

inline constexpr int kFoldChannels = 16, kFoldLanes = 32;

/// Adds the stripes' sums in float64, always in the same order; finish(channel, sum, other) writes the results.
template <class Finish>
__global__ void __launch_bounds__(kFoldChannels* kFoldLanes)
    fold(Finish finish, const float* partials, int stripes, int64_t channels) {
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kFoldChannels + thread % kFoldChannels;
  double sum = 0, other = 0;
  if (channel < channels)
    for (int64_t stripe = thread / kFoldChannels; stripe < stripes; stripe += kFoldLanes) {
      sum += static_cast<double>(partials[2 * stripe * channels + channel]);
      other += static_cast<double>(partials[(2 * stripe + 1) * channels + channel]);
    }
  constexpr int kBlockThreads = kFoldChannels * kFoldLanes;
  double* mine = shared_memory<double, 2 * kBlockThreads>() + thread;
  mine[0] = sum;
  mine[kBlockThreads] = other;
  for (int half = kBlockThreads / 2; half >= kFoldChannels; half /= 2) {
    __syncthreads();
    if (thread >= half) continue;
    mine[0] += mine[half];
    mine[kBlockThreads] += mine[kBlockThreads + half];
  }
  if (thread < kFoldChannels && channel < channels) finish(channel, mine[0], mine[kBlockThreads]);
}

// ---- launches ----

template <int kChannels>
struct Width {
  static constexpr int value = kChannels;
};

/// Calls with(sample type, Width<channels per access>). An access is 16 bytes if a row of `channels` is a whole number
/// of packs and every pointer in `memory` is 16-byte aligned (null counts as aligned); otherwise one channel.
template <class F>
auto by_type(DType dtype, int64_t channels, std::initializer_list<const void*> memory, const F& with) {
  uintptr_t bits = 0;
  for (const void* pointer : memory) bits |= reinterpret_cast<uintptr_t>(pointer);
  const auto by_width = [&](auto type) {
    constexpr int kWidth = kPackWidth<decltype(type)>;
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

template <class Body, class Finish>
void launch_reduce(const Body& body, const Finish& finish, int64_t rows, int64_t channels, float* partials,
                   void* queue) {
  const Tiling tiling = tiling_of(rows, channels, Body::kWidth);
  launch(queue, tiling.blocks(), kThreads, reduce<Body>, body, tiling, partials);
  launch(queue, divided_up(channels, kFoldChannels), kFoldChannels * kFoldLanes, fold<Finish>, finish, partials,
         tiling.stripes, channels);
}

}  // namespace
}  // namespace trainopt::kernels::device
