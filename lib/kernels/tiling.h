// How rows and channels are dealt out to blocks of threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trainopt::kernels::device {

inline constexpr int kThreads = 256;   ///< in a block
inline constexpr int kMostLanes = 32;  ///< threads side by side along the channels: a warp reads 512 bytes in one piece
inline constexpr int kRowsInTurn =
    4;  ///< a thread's rows in one chunk, read before the first is used where registers allow
inline constexpr int kBlocks =
    384;  ///< three on each of 128 multiprocessors: all at once on Hopper. More would only leave more partial sums
inline constexpr int kRowsInFloat = 256;  ///< most rows that one thread sums in float32

/// A block has `lanes` × (256 ÷ lanes) threads: a tile of channels, `width` a thread, and as many rows at once. A chunk
/// is kRowsInTurn times those rows; stripe i has the chunks i, i + stripes, …. The numbers follow from the shape alone,
/// so sums are the same on every GPU.
struct Tiling {
  int64_t rows, channels, chunks;
  int lanes, tiles, stripes;

  constexpr int rows_at_once() const { return kThreads / lanes; }
  constexpr int64_t blocks() const { return static_cast<int64_t>(tiles) * stripes; }
  /// Two sums by channel of each stripe.
  constexpr int64_t partials() const { return 2 * static_cast<int64_t>(stripes) * channels; }
};

constexpr int64_t divided_up(int64_t number, int64_t by) { return (number + by - 1) / by; }

/// `width`: channels of one thread.
constexpr Tiling tiling_of(int64_t rows, int64_t channels, int width) {
  Tiling t{rows, channels, 0, 1, 0, 0};
  while (t.lanes < kMostLanes && t.lanes * width < channels) t.lanes *= 2;
  t.tiles = static_cast<int>(divided_up(channels, static_cast<int64_t>(t.lanes) * width));
  t.chunks = divided_up(rows, static_cast<int64_t>(t.rows_at_once()) * kRowsInTurn);
  const int64_t wanted = std::max(divided_up(kBlocks, t.tiles), divided_up(t.chunks * kRowsInTurn, kRowsInFloat));
  t.stripes = static_cast<int>(std::min(t.chunks, wanted));
  return t;
}

}  // namespace trainopt::kernels::device
