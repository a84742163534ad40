// Code that norm and pool share on a CPU: tensors as rows of channels, cut into pieces for threads.
#pragma once

#include "base/error.h"
#include "device/tensor.h"
#include "kernels/cpu/by_type.h"
#include "kernels/cpu/row_loops.h"
#include "kernels/norm/norm.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>

namespace trainopt::kernels::by_rows {

/// Number of pieces that rows are cut into. It is constant, so that sums do not depend on the number of threads.
inline constexpr int64_t kPieces = 64;
/// Rows that are summed in float32, relative to the pivot of the channel, before they are added to the float64 sums.
inline constexpr int64_t kRowsInFloat = 256;

struct Rows {
  int64_t count, channels;
};

/// A channels-last tensor as rows of channels.
inline Rows rows_of(const at::Tensor& x) {
  TRAINOPT_CHECK(x.dim() == 4 && x.is_cpu() && x.is_contiguous(at::MemoryFormat::ChannelsLast));
  return {x.size(0) * x.size(2) * x.size(3), x.size(1)};
}
/// Checks that both tensors have the same shape and type.
inline Rows rows_of(const at::Tensor& x, const at::Tensor& other) {
  rows_of(other);
  TRAINOPT_CHECK(x.scalar_type() == other.scalar_type() && x.sizes() == other.sizes());
  return rows_of(x);
}

inline at::Tensor image(const at::Tensor& x, at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, x.options().dtype(type).memory_format(at::MemoryFormat::ChannelsLast).requires_grad(false));
}
inline at::Tensor like(const at::Tensor& x) { return image(x, x.sizes(), x.scalar_type()); }
inline at::Tensor by_channel(const at::Tensor& x) {
  return at::empty({x.size(1)},
                   x.options().dtype(at::kFloat).memory_format(at::MemoryFormat::Contiguous).requires_grad(false));
}

/// Values per thread below which starting another thread does not pay.
inline constexpr int64_t kGrain = 32768;

/// Calls work(piece, first row, end) for each piece of rows with `channels` values each, in parallel.
template <class F>
void each_piece(int64_t rows, int64_t channels, F work) {
  const int64_t step = (rows + kPieces - 1) / kPieces;
  at::parallel_for(0, kPieces, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, step * channels)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t piece = begin; piece < end; ++piece)
                       if (piece * step < rows) work(piece, piece * step, std::min(rows, (piece + 1) * step));
                   });
}

/// Per-channel values with padding past the end, as the loops read them.
class Padded {
 public:
  explicit Padded(const at::Tensor& values) : numbers_(static_cast<size_t>(values.numel() + kMaxLanes)) {
    std::copy_n(values.const_data_ptr<float>(), values.numel(), numbers_.data());
  }
  operator const float*() const { return numbers_.data(); }

 private:
  std::vector<float> numbers_;
};

using TwoSums = std::array<std::vector<double>, 2>;

/// Two sums per channel over all rows: add(first row, rows, sums, others) adds to float32 sums.
template <class Add>
TwoSums sums_over(int64_t rows, int64_t channels, const Add& add) {
  std::vector<double> parts(static_cast<size_t>(kPieces * 2 * channels), 0.0);
  each_piece(rows, channels, [&](int64_t piece, int64_t begin, int64_t end) {
    std::vector<float> sums(static_cast<size_t>(channels + kMaxLanes)), others(sums.size());
    double* part = parts.data() + piece * 2 * channels;
    for (int64_t row = begin; row < end; row += kRowsInFloat) {
      std::fill(sums.begin(), sums.end(), 0.0f);
      std::fill(others.begin(), others.end(), 0.0f);
      add(row, std::min(kRowsInFloat, end - row), sums.data(), others.data());
      for (int64_t i = 0; i < channels; ++i) {
        part[i] += static_cast<double>(sums[static_cast<size_t>(i)]);
        part[channels + i] += static_cast<double>(others[static_cast<size_t>(i)]);
      }
    }
  });
  TwoSums total{std::vector<double>(static_cast<size_t>(channels)), std::vector<double>(static_cast<size_t>(channels))};
  for (int64_t piece = 0; piece < kPieces; ++piece)
    for (size_t which = 0; which < 2; ++which)
      for (int64_t c = 0; c < channels; ++c)
        total[which][static_cast<size_t>(c)] +=
            parts[static_cast<size_t>((piece * 2 + static_cast<int64_t>(which)) * channels + c)];
  return total;
}

/// kernels::coefficients_of() from these sums, as tensors like x.
inline Coefficients coefficients_of(const TwoSums& sums, const at::Tensor& x, const Statistics& by, int64_t count) {
  at::Tensor gradient = by_channel(x), product = by_channel(x);
  std::copy(sums[0].begin(), sums[0].end(), gradient.mutable_data_ptr<float>());
  std::copy(sums[1].begin(), sums[1].end(), product.mutable_data_ptr<float>());
  return kernels::coefficients_of(gradient, product, by, count);
}

}  // namespace trainopt::kernels::by_rows
