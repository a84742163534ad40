#include "base/error.h"
#include "kernels/cpu/by_type.h"
#include "optimizations/fused_kernels/cpu/row_kernels.h"
#include "optimizations/fused_kernels/norm_kernels.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>

namespace trainopt::fused_kernels {
namespace {

using kernels::by_type;
using kernels::has_avx512;

/// Pieces that rows are cut into: always as many, so that sums are the same on any number of threads.
constexpr int64_t kPieces = 64;
/// Rows that are summed in float32, with the channel's pivot taken away, before they go into the double sums.
constexpr int64_t kRowsInFloat = 256;

struct Rows {
  int64_t count, channels;
};

/// Channels-last memory is rows of channels.
Rows rows_of(const at::Tensor& x) {
  TRAINOPT_CHECK(x.dim() == 4 && x.is_cpu() && x.is_contiguous(at::MemoryFormat::ChannelsLast));
  return {x.size(0) * x.size(2) * x.size(3), x.size(1)};
}
/// Of tensors that must be of one kind.
Rows rows_of(const at::Tensor& x, const at::Tensor& other) {
  rows_of(other);
  TRAINOPT_CHECK(x.scalar_type() == other.scalar_type() && x.sizes() == other.sizes());
  return rows_of(x);
}

at::Tensor image(const at::Tensor& x, at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, x.options().dtype(type).memory_format(at::MemoryFormat::ChannelsLast).requires_grad(false));
}
at::Tensor like(const at::Tensor& x) { return image(x, x.sizes(), x.scalar_type()); }
at::Tensor by_channel(const at::Tensor& x) {
  return at::empty({x.size(1)},
                   x.options().dtype(at::kFloat).memory_format(at::MemoryFormat::Contiguous).requires_grad(false));
}

/// Numbers for which a thread is worth its start.
constexpr int64_t kGrain = 32768;

/// Of rows with `channels` numbers each.
template <class F>
void each_piece(int64_t rows, int64_t channels, F work) {
  const int64_t step = (rows + kPieces - 1) / kPieces;
  at::parallel_for(0, kPieces, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, step * channels)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t piece = begin; piece < end; ++piece)
                       if (piece * step < rows) work(piece, piece * step, std::min(rows, (piece + 1) * step));
                   });
}

/// Values by channel as RowKernels read them.
class Padded {
 public:
  explicit Padded(const at::Tensor& values) : numbers_(static_cast<size_t>(values.numel() + kMostLanes)) {
    std::copy_n(values.const_data_ptr<float>(), values.numel(), numbers_.data());
  }
  operator const float*() const { return numbers_.data(); }

 private:
  std::vector<float> numbers_;
};

using TwoSums = std::array<std::vector<double>, 2>;

/// Two sums by channel, over all rows: add(first row, rows, sums, others) adds to floats.
template <class Add>
TwoSums sums_over(int64_t rows, int64_t channels, const Add& add) {
  std::vector<double> parts(static_cast<size_t>(kPieces * 2 * channels), 0.0);
  each_piece(rows, channels, [&](int64_t piece, int64_t begin, int64_t end) {
    std::vector<float> sums(static_cast<size_t>(channels + kMostLanes)), others(sums.size());
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

GradientSums as_tensors(const TwoSums& sums, const at::Tensor& x) {
  GradientSums result{by_channel(x), by_channel(x)};
  std::copy(sums[0].begin(), sums[0].end(), result.gradient.mutable_data_ptr<float>());
  std::copy(sums[1].begin(), sums[1].end(), result.product.mutable_data_ptr<float>());
  return result;
}

struct Images {
  explicit Images(const at::Tensor& x)
      : shape{x.size(1), x.size(2), x.size(3), pooled_size(x.size(2)), pooled_size(x.size(3))},
        count(x.size(0)),
        size(shape.height * shape.width * shape.channels),
        pooled(shape.pooled_height * shape.pooled_width * shape.channels) {}
  static int64_t pooled_size(int64_t extent) { return (extent + 2 * kPadding - kWindow) / kStride + 1; }
  PoolShape shape;
  int64_t count, size, pooled;  // numbers in an image, and in what is left of it
};

class CpuKernels : public NormKernels {
 public:
  explicit CpuKernels(bool sixteen) : sixteen_(sixteen) {}

  Moments moments(const at::Tensor& x) const override {
    const auto [rows, channels] = rows_of(x);
    const Padded pivot(pivots_of(x));
    const TwoSums sums = by_type(x, [&, rows = rows, channels = channels](auto type) {
      using T = decltype(type);
      const T* in = x.const_data_ptr<T>();
      return sums_over(rows, channels,
                       [&, run = kernels<T>().moments](int64_t first, int64_t count, float* distances, float* squares) {
                         run(in + first * channels, count, channels, pivot, distances, squares);
                       });
    });
    Moments moments{by_channel(x), by_channel(x)};
    for (int64_t c = 0; c < channels; ++c) {
      const auto at = static_cast<size_t>(c);
      const double mean = sums[0][at] / static_cast<double>(rows),
                   variance = sums[1][at] / static_cast<double>(rows) - mean * mean;
      moments.mean.mutable_data_ptr<float>()[c] = static_cast<float>(static_cast<double>(pivot[c]) + mean);
      moments.variance.mutable_data_ptr<float>()[c] = static_cast<float>(variance < 0 ? 0 : variance);
    }
    return moments;
  }

  at::Tensor apply(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& residual,
                   bool relu) const override {
    const auto [rows, channels] = residual.defined() ? rows_of(x, residual) : rows_of(x);
    at::Tensor result = like(x);
    const Padded factor(scale), offset(shift);
    by_type(x, [&, rows = rows, channels = channels](auto type) {
      using T = decltype(type);
      const T *in = x.const_data_ptr<T>(), *added = residual.defined() ? residual.const_data_ptr<T>() : nullptr;
      T* out = result.mutable_data_ptr<T>();
      each_piece(rows, channels, [&](int64_t, int64_t begin, int64_t end) {
        const int64_t at = begin * channels;
        kernels<T>().apply(in + at, added ? added + at : nullptr, out + at, end - begin, channels, factor, offset,
                           relu);
      });
    });
    return result;
  }

  GradientSums sums(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean) const override {
    return gated_sums(Gate::open, gradient, x, mean, mean, mean);
  }
  GradientSums sums_through_relu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean,
                                 const at::Tensor& scale, const at::Tensor& shift) const override {
    return gated_sums(Gate::relu, gradient, x, mean, scale, shift);
  }
  GradientSums sums_through_output(const at::Tensor& gradient, const at::Tensor& y, const at::Tensor& x,
                                   const at::Tensor& mean, at::Tensor& g) const override {
    rows_of(x, y);
    g = like(x);
    return gated_sums(Gate::output, gradient, x, mean, mean, mean, y, g);
  }

  at::Tensor input_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& of_gradient,
                            const at::Tensor& of_x, const at::Tensor& rest) const override {
    return gated_input_gradient(Gate::open, g, x, of_gradient, of_x, rest, rest, rest);
  }
  at::Tensor input_gradient_through_relu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& of_gradient,
                                         const at::Tensor& of_x, const at::Tensor& rest, const at::Tensor& scale,
                                         const at::Tensor& shift) const override {
    return gated_input_gradient(Gate::relu, gradient, x, of_gradient, of_x, rest, scale, shift);
  }

  Pooled pool(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift) const override {
    rows_of(x);
    const Images s(x);
    const std::array<int64_t, 4> sizes{s.count, s.shape.channels, s.shape.pooled_height, s.shape.pooled_width};
    Pooled result{image(x, sizes, x.scalar_type()), image(x, sizes, at::kByte), image(x, sizes, x.scalar_type())};
    const Padded factor(scale), offset(shift);
    by_type(x, [&](auto type) {
      using T = decltype(type);
      const T* in = x.const_data_ptr<T>();
      T *values = result.values.mutable_data_ptr<T>(), *chosen = result.chosen.mutable_data_ptr<T>();
      auto* places = result.places.mutable_data_ptr<uint8_t>();
      each_line(s.count, s.shape.pooled_height, s.shape.pooled_width * s.shape.channels,
                [&](int64_t image, int64_t line) {
                  const int64_t out = image * s.pooled;
                  kernels<T>().pool(in + image * s.size, values + out, places + out, chosen + out, s.shape, line,
                                    factor, offset);
                });
    });
    return result;
  }
  GradientSums sums_through_pool(const at::Tensor& gradient, const Pooled& pooled,
                                 const at::Tensor& mean) const override {
    const auto [rows, channels] = rows_of(gradient, pooled.chosen);
    rows_of(pooled.places);
    const Padded middle(mean);
    const auto* places = pooled.places.const_data_ptr<uint8_t>();
    return as_tensors(
        by_type(gradient,
                [&, rows = rows, channels = channels](auto type) {
                  using T = decltype(type);
                  const T *from = gradient.const_data_ptr<T>(), *chosen = pooled.chosen.const_data_ptr<T>();
                  return sums_over(rows, channels,
                                   [&, run = kernels<T>().sums_through_pool](int64_t first, int64_t count, float* sums,
                                                                             float* products) {
                                     const int64_t at = first * channels;
                                     run(from + at, places + at, chosen + at, count, channels, middle, sums, products);
                                   });
                }),
        gradient);
  }
  at::Tensor input_gradient_through_pool(const at::Tensor& gradient, const at::Tensor& places, const at::Tensor& x,
                                         const at::Tensor& of_gradient, const at::Tensor& of_x,
                                         const at::Tensor& rest) const override {
    rows_of(gradient);
    rows_of(x);
    const Images s(x);
    TRAINOPT_CHECK(gradient.scalar_type() == x.scalar_type() && gradient.numel() == s.count * s.pooled);
    at::Tensor result = like(x);
    const Padded a(of_gradient), b(of_x), c(rest);
    by_type(x, [&](auto type) {
      using T = decltype(type);
      const T *in = x.const_data_ptr<T>(), *from = gradient.const_data_ptr<T>();
      const auto* found = places.const_data_ptr<uint8_t>();
      T* out = result.mutable_data_ptr<T>();
      each_line(s.count, s.shape.height, s.shape.width * s.shape.channels,
                [&](int64_t image, int64_t line) {  // by pixel: no two threads write one
                  const int64_t pooled = image * s.pooled, at = image * s.size;
                  kernels<T>().input_gradient_through_pool(from + pooled, found + pooled, in + at, out + at, s.shape,
                                                           line, {a, b, c});
                });
    });
    return result;
  }

 private:
  template <class T>
  const RowKernels<T>& kernels() const {
    return sixteen_ ? rows_of_sixteen<T>() : rows_of_eight<T>();
  }

  /// A row of the tensor itself: squares of large values that differ little would leave nothing of the variance, their
  /// distances from it do.
  static at::Tensor pivots_of(const at::Tensor& x) {
    return x.as_strided({x.size(1)}, {1}).to(at::kFloat).nan_to_num(0, 0, 0);
  }

  /// Of `numbers` numbers each.
  template <class F>
  static void each_line(int64_t images, int64_t lines, int64_t numbers, const F& work) {
    each_piece(images * lines, numbers, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; ++at) work(at / lines, at % lines);
    });
  }

  GradientSums gated_sums(Gate gate, const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean,
                          const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& y = {},
                          const at::Tensor& g = {}) const {
    const auto [rows, channels] = rows_of(x, gradient);
    const Padded middle(mean), factor(scale), offset(shift);
    return as_tensors(
        by_type(x,
                [&, rows = rows, channels = channels](auto type) {
                  using T = decltype(type);
                  const T *in = x.const_data_ptr<T>(), *from = gradient.const_data_ptr<T>(),
                          *output = y.defined() ? y.const_data_ptr<T>() : in;
                  T* passed = g.defined() ? g.mutable_data_ptr<T>() : nullptr;
                  return sums_over(
                      rows, channels,
                      [&, run = kernels<T>().sums](int64_t first, int64_t count, float* sums, float* products) {
                        const int64_t at = first * channels;
                        run(gate, from + at, in + at, output + at, passed ? passed + at : nullptr, count, channels,
                            middle, factor, offset, sums, products);
                      });
                }),
        x);
  }

  at::Tensor gated_input_gradient(Gate gate, const at::Tensor& gradient, const at::Tensor& x,
                                  const at::Tensor& of_gradient, const at::Tensor& of_x, const at::Tensor& rest,
                                  const at::Tensor& scale, const at::Tensor& shift) const {
    const auto [rows, channels] = rows_of(x, gradient);
    at::Tensor result = like(x);
    const Padded a(of_gradient), b(of_x), c(rest), factor(scale), offset(shift);
    by_type(x, [&, rows = rows, channels = channels](auto type) {
      using T = decltype(type);
      const T *in = x.const_data_ptr<T>(), *from = gradient.const_data_ptr<T>();
      T* out = result.mutable_data_ptr<T>();
      each_piece(rows, channels, [&](int64_t, int64_t begin, int64_t end) {
        const int64_t at = begin * channels;
        kernels<T>().input_gradient(gate, from + at, in + at, out + at, end - begin, channels, {a, b, c}, factor,
                                    offset);
      });
    });
    return result;
  }

  bool sixteen_;
};

}  // namespace

const NormKernels& cpu_kernels() { return *all_cpu_kernels().back(); }

std::vector<const NormKernels*> all_cpu_kernels() {
  static const CpuKernels eight(false), sixteen(true);
  if (has_avx512()) return {&eight, &sixteen};
  return {&eight};
}

}  // namespace trainopt::fused_kernels
