// Rows of values cut into pieces for threads, and sums over rows that do not depend on the number of threads.
#pragma once

#include "device/tensor.h"
#include "kernels/cpu/row_loops.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

namespace trainopt::kernels {

/// The largest number of pieces that rows are cut into.
inline constexpr int64_t kPieces = 64;
/// Rows that are summed in float32 before they are added to the float64 sums.
inline constexpr int64_t kRowsInFloat = 256;

/// Values per thread below which starting another thread does not pay.
inline constexpr int64_t kGrain = 32768;

/// Calls work(first, last) on ranges of `count` items of `size` values each, in parallel.
template <class F>
void parallel_ranges(int64_t count, int64_t size, const F& work) {
  at::parallel_for(0, count, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, size)), work);
}

/// Calls work(piece, first row, end) for each of `pieces` pieces of rows with `channels` values each, in parallel.
template <class F>
void each_piece(int64_t rows, int64_t channels, F work, int64_t pieces = kPieces) {
  const int64_t step = (rows + pieces - 1) / pieces;
  at::parallel_for(0, pieces, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, step * channels)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t piece = begin; piece < end; ++piece)
                       if (piece * step < rows) work(piece, piece * step, std::min(rows, (piece + 1) * step));
                   });
}

/// Bytes of a result from which it is streamed (StreamedVector): most of it would have left the caches of two cores
/// before it is read.
inline constexpr size_t kStreamedBytes = size_t{32} << 20;

/// Whether to stream this new tensor's rows of channels: it has so many bytes, and all its vectors are aligned.
inline bool streams(const at::Tensor& result, size_t from_bytes) {
  constexpr uintptr_t kAlignment = 64;
  return result.nbytes() >= from_bytes && result.size(1) % kMaxLanes == 0 &&
         reinterpret_cast<uintptr_t>(result.const_data_ptr()) % kAlignment == 0;
}

/// Work space for so many numbers and a vector past the end.
inline std::vector<float> room_for(int64_t numbers) {
  return std::vector<float>(static_cast<size_t>(numbers + kMaxLanes));
}

/// Per-channel values with padding past the end, as the loops read them.
class Padded {
 public:
  explicit Padded(const at::Tensor& values) : numbers_(room_for(values.numel())) {
    std::copy_n(values.const_data_ptr<float>(), values.numel(), numbers_.data());
  }
  operator const float*() const { return numbers_.data(); }

 private:
  std::vector<float> numbers_;
};

/// Several sums per channel.
template <size_t kSums>
using Sums = std::array<std::vector<double>, kSums>;

/// Number of pieces for sums of rows. Each has its own sums, which one thread adds up in the end, so a small tensor has
/// few. The number depends on the size alone, so that sums do not depend on the number of threads. It is a power of
/// two, which most numbers of threads share evenly.
inline int64_t pieces_of_sums(int64_t rows, int64_t channels) {
  const auto most = static_cast<uint64_t>(std::clamp<int64_t>(rows * channels / kGrain, 1, kPieces));
  return static_cast<int64_t>(std::bit_floor(most));
}

/// Sums per channel over all rows: add(first row, rows, sums…) adds to kSums arrays of float32 sums.
template <size_t kSums, class Add>
Sums<kSums> sums_over(int64_t rows, int64_t channels, const Add& add) {
  const int64_t pieces = pieces_of_sums(rows, channels);
  std::vector<double> parts(static_cast<size_t>(pieces * channels) * kSums, 0.0);
  const auto add_piece = [&](int64_t piece, int64_t begin, int64_t end) {
    std::array<std::vector<float>, kSums> sums;
    for (int64_t row = begin; row < end; row += kRowsInFloat) {
      for (auto& each : sums) each.assign(static_cast<size_t>(channels + kMaxLanes), 0.0f);
      std::apply([&](auto&... each) { add(row, std::min(kRowsInFloat, end - row), each.data()...); }, sums);
      double* part = parts.data() + piece * channels * static_cast<int64_t>(kSums);
      for (const auto& each : sums)
        for (int64_t i = 0; i < channels; ++i) *part++ += static_cast<double>(each[static_cast<size_t>(i)]);
    }
  };
  each_piece(rows, channels, add_piece, pieces);
  Sums<kSums> total;
  for (auto& each : total) each.assign(static_cast<size_t>(channels), 0.0);
  const double* part = parts.data();
  for (int64_t piece = 0; piece < pieces; ++piece)
    for (auto& each : total)
      for (double& sum : each) sum += *part++;
  return total;
}

}  // namespace trainopt::kernels
