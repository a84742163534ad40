// The shapes of a pass: rows swept by a grid of blocks, with two sums by channel (reduce, then fold) or with a result a
// row (map); and what lies between, by channel (each_channel). Include on_device.cuh or its twin for the host first.
#pragma once

#include "kernels/dtype.h"
#include "optimizations/fused_kernels/cuda/tiling.h"

namespace trainopt::fused_kernels::cuda {

using namespace trainopt::kernels;  // what all kernels have

namespace {

template <int kWidth>
using Floats = Pack<float, kWidth>;

template <int kWidth, class T>
__device__ inline Pack<T, kWidth> load(const T* from) {
  return read<Pack<T, kWidth>>(from);
}
template <class T, int kWidth>
__device__ inline Floats<kWidth> widened(const Pack<T, kWidth>& packed) {
  Floats<kWidth> floats;
  for (int i = 0; i < kWidth; ++i) floats.values[i] = wide(packed.values[i]);
  return floats;
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

/// Where a thread is: its first channel, its stripe, and its row among those that the block has at once.
struct Place {
  int64_t channel;
  int stripe, row;
};
__device__ inline Place place_of(const Tiling& tiling, int width) {
  const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  // Tiles of one stripe are neighbours: what they read is.
  return {(static_cast<int64_t>(block % tiling.tiles) * tiling.lanes + thread % tiling.lanes) * width,
          block / tiling.tiles, thread / tiling.lanes};
}

/// A thread's channels of one row: the row, and where they are in memory shaped like the rows.
struct Spot {
  int64_t row, channel, at;
};

/// Calls use(spot, ahead) for each row of a thread, where `ahead` is what load(spot) gave: of kAhead rows before the
/// first of them is used, so that many reads are on their way at once. `down`: from the last chunk to the first; what
/// the pass before read last may still be in the cache.
template <int kAhead, class Load, class Use>
__device__ inline void sweep(const Tiling& tiling, const Place& place, bool down, const Load& load_spot,
                             const Use& use) {
  const int at_once = tiling.rows_at_once();
  for (int64_t i = place.stripe; i < tiling.chunks; i += tiling.stripes) {
    const int64_t begin = (down ? tiling.chunks - 1 - i : i) * at_once * kRowsInTurn + place.row;
    const auto spot = [&](int turn) {
      const int64_t row = begin + turn * at_once,
                    inside = row < tiling.rows ? row : tiling.rows - 1;  // behind the end: read in vain, not used
      return Spot{inside, place.channel, inside * tiling.channels + place.channel};
    };
    for (int turn = 0; turn < kRowsInTurn; turn += kAhead) {
      decltype(load_spot(Spot())) ahead[kAhead];
      for (int k = 0; k < kAhead; ++k) ahead[k] = load_spot(spot(turn + k));
      for (int k = 0; k < kAhead; ++k)
        if (begin + (turn + k) * at_once < tiling.rows) use(spot(turn + k), ahead[k]);
    }
  }
}

/// What a body knows that needs to know nothing.
struct Nothing {};

/// Blocks that a multiprocessor must have room for: 80 registers a thread with three, 128 with two. Those a body needs
/// that reads many packs a row or knows much of a channel.
template <class Body>
inline constexpr int kResident = Body::kAhead == 1 || sizeof(Body().known(0)) > 128 ? 2 : 3;

/// Body::use(known, spot, ahead) for all rows; `known` is what the body reads of a thread's channels once.
template <class Body>
__global__ void __launch_bounds__(kThreads, kResident<Body>) map(Body body, Tiling tiling) {
  const Place place = place_of(tiling, Body::kWidth);
  if (place.channel >= tiling.channels) return;
  const auto known = body.known(place.channel);
  sweep<Body::kAhead>(
      tiling, place, true, [&](const Spot& spot) { return body.load(spot); },
      [&](const Spot& spot, const auto& ahead) { body.use(known, spot, ahead); });
}

/// Body::add(known, spot, ahead, sum, other) for all rows, then the sums of the block's threads: partials[stripe][sum
/// or other][channel].
template <class Body>
__global__ void __launch_bounds__(kThreads, kResident<Body>) reduce(Body body, Tiling tiling, float* partials) {
  constexpr int kWidth = Body::kWidth;
  const Place place = place_of(tiling, kWidth);
  Floats<kWidth> sum{}, other{};
  if (place.channel < tiling.channels) {
    const auto known = body.known(place.channel);
    sweep<Body::kAhead>(
        tiling, place, false, [&](const Spot& spot) { return body.load(spot); },
        [&](const Spot& spot, const auto& ahead) { body.add(known, spot, ahead, sum, other); });
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
  if (thread >= tiling.lanes || place.channel >= tiling.channels) return;
  float* to = partials + 2 * place.stripe * tiling.channels + place.channel;
  for (int i = 0; i < kWidth; ++i) {
    to[i] = mine[i * kThreads];
    to[tiling.channels + i] = mine[(kWidth + i) * kThreads];
  }
}

inline constexpr int kFoldChannels = 16, kFoldLanes = 32;

/// The stripes' sums in float64, always in the same order; finish(channel, sum, other) writes what follows from them.
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
  constexpr int kRoom = kFoldChannels * kFoldLanes;
  double* mine = shared_memory<double, 2 * kRoom>() + thread;
  mine[0] = sum;
  mine[kRoom] = other;
  for (int half = kRoom / 2; half >= kFoldChannels; half /= 2) {
    __syncthreads();
    if (thread >= half) continue;
    mine[0] += mine[half];
    mine[kRoom] += mine[kRoom + half];
  }
  if (thread < kFoldChannels && channel < channels) finish(channel, mine[0], mine[kRoom]);
}

/// body(channel) for each.
template <class Body>
__global__ void __launch_bounds__(kThreads) each_channel(Body body, int64_t channels) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kThreads + static_cast<int64_t>(threadIdx.x);
  if (channel < channels) body(channel);
}

}  // namespace
}  // namespace trainopt::fused_kernels::cuda
