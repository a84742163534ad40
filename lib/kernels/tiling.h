// Distribution of rows and channels to thread blocks.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trainopt::kernels::device {

inline constexpr int kThreads = 256;  ///< per block
inline constexpr int kMaxLanes = 32;  ///< threads along the channels: a warp reads 512 contiguous bytes
/// A thread's rows in one chunk. Where registers allow, all are read before the first is used.
inline constexpr int kRowsPerThread = 4;
/// Three on each of 128 multiprocessors, all resident at once on Hopper. More would only produce more partial sums.
inline constexpr int kBlocks = 384;
inline constexpr int kRowsInFloat = 256;  ///< the most rows that one thread sums in float32

/// A block covers a tile of channels with `lanes` × (256 ÷ lanes) threads: `lanes` threads of `width` channels each, by
/// 256 ÷ lanes rows at once. A chunk is kRowsPerThread times that many rows; stripe i processes chunks i, i + stripes,
/// …. The tiling depends on the shape alone, so sums are the same on every GPU.
struct Tiling {
  int64_t rows, channels, chunks;
  int lanes, tiles, stripes;

  constexpr int rows_at_once() const { return kThreads / lanes; }
  constexpr int64_t blocks() const { return static_cast<int64_t>(tiles) * stripes; }
  /// Each stripe has two sums per channel.
  constexpr int64_t partials() const { return 2 * static_cast<int64_t>(stripes) * channels; }
};

constexpr int64_t divided_up(int64_t number, int64_t by) { return (number + by - 1) / by; }

/// `width`: channels per thread.
constexpr Tiling tiling_of(int64_t rows, int64_t channels, int width) {
  Tiling t{rows, channels, 0, 1, 0, 0};
  while (t.lanes < kMaxLanes && t.lanes * width < channels) t.lanes *= 2;
  t.tiles = static_cast<int>(divided_up(channels, static_cast<int64_t>(t.lanes) * width));
  t.chunks = divided_up(rows, static_cast<int64_t>(t.rows_at_once()) * kRowsPerThread);
  const int64_t wanted = std::max(divided_up(kBlocks, t.tiles), divided_up(t.chunks * kRowsPerThread, kRowsInFloat));
  t.stripes = static_cast<int>(std::min(t.chunks, wanted));
  return t;
}

}  // namespace trainopt::kernels::device
