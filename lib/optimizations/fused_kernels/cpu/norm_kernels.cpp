#include "base/error.h"
#include "optimizations/fused_kernels/cpu/eight.h"
#include "optimizations/fused_kernels/norm_kernels.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace trainopt::fused_kernels {
namespace {

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

at::Tensor like(const at::Tensor& x) { return at::empty(x.sizes(), x.options().memory_format(at::MemoryFormat::ChannelsLast).requires_grad(false)); }
at::Tensor by_channel(const at::Tensor& x) { return at::empty({x.size(1)}, x.options().dtype(at::kFloat).memory_format(at::MemoryFormat::Contiguous).requires_grad(false)); }

template <class F>
void each_piece(int64_t rows, F work) {
  const int64_t step = (rows + kPieces - 1) / kPieces;
  at::parallel_for(0, kPieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece)
      if (piece * step < rows) work(piece, piece * step, std::min(rows, (piece + 1) * step));
  });
}

/// Values by channel, with room behind them for whole eights.
class Padded {
 public:
  explicit Padded(const at::Tensor& values) : numbers_(static_cast<size_t>(values.numel() + kEight)) {
    std::copy_n(values.const_data_ptr<float>(), values.numel(), numbers_.data());
  }
  __m256 operator[](int64_t channel) const { return load(numbers_.data() + channel); }

 private:
  std::vector<float> numbers_;
};

/// Adds `count` rows from `first`: body(row, first channel, lanes, sum, other) adds eight numbers to both. Written out for as many eights as have
/// their sums in registers.
template <class Lanes, class Body, int64_t... kEights>
void sum_tile(int64_t first, int64_t count, int64_t c, const Lanes& lanes, const Body& body, float* sums, float* others, std::integer_sequence<int64_t, kEights...>) {
  __m256 sum[] = {load(sums + c + kEights * kEight)...}, other[] = {load(others + c + kEights * kEight)...};
  for (int64_t row = first; row < first + count; ++row) (body(row, c + kEights * kEight, lanes, sum[kEights], other[kEights]), ...);
  (store(sums + c + kEights * kEight, sum[kEights]), ...);
  (store(others + c + kEights * kEight, other[kEights]), ...);
}
using Four = std::make_integer_sequence<int64_t, 4>;
using One = std::make_integer_sequence<int64_t, 1>;

constexpr int64_t kRowsAtOnce = 16;   // few enough that memory is read in its order

/// An adder for sums_over() of what body adds for each eight of each row.
template <class Body>
auto by_eights(int64_t channels, const Body& body) {
  return [channels, body](int64_t first, int64_t count, float* sums, float* others) {
    for (const int64_t end = first + count; first < end; first += kRowsAtOnce) {
      const int64_t rows = std::min(kRowsAtOnce, end - first);
      int64_t c = 0;
      for (; c + 4 * kEight <= channels; c += 4 * kEight) sum_tile(first, rows, c, Whole(), body, sums, others, Four());
      for (; c + kEight <= channels; c += kEight) sum_tile(first, rows, c, Whole(), body, sums, others, One());
      if (c < channels) sum_tile(first, rows, c, Part{channels - c}, body, sums, others, One());
    }
  };
}

/// Two sums by channel, over all rows: add(first row, rows, sums, others) adds to floats, with room for whole eights.
template <class Add>
std::array<std::vector<double>, 2> sums_over(int64_t rows, int64_t channels, const Add& add) {
  std::vector<double> parts(static_cast<size_t>(kPieces * 2 * channels), 0.0);
  each_piece(rows, [&](int64_t piece, int64_t begin, int64_t end) {
    std::vector<float> sums(static_cast<size_t>(channels + kEight)), others(sums.size());
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
  std::array<std::vector<double>, 2> total{std::vector<double>(static_cast<size_t>(channels)), std::vector<double>(static_cast<size_t>(channels))};
  for (int64_t piece = 0; piece < kPieces; ++piece)
    for (size_t which = 0; which < 2; ++which)
      for (int64_t c = 0; c < channels; ++c) total[which][static_cast<size_t>(c)] += parts[static_cast<size_t>((piece * 2 + static_cast<int64_t>(which)) * channels + c)];
  return total;
}

GradientSums as_tensors(const std::array<std::vector<double>, 2>& sums, const at::Tensor& x) {
  GradientSums result{by_channel(x), by_channel(x)};
  std::copy(sums[0].begin(), sums[0].end(), result.gradient.mutable_data_ptr<float>());
  std::copy(sums[1].begin(), sums[1].end(), result.product.mutable_data_ptr<float>());
  return result;
}

template <class T>
Moments moments_of(const at::Tensor& x) {
  const auto [rows, channels] = rows_of(x);
  const T* in = x.const_data_ptr<T>();
  // Distances from a row of the tensor itself: squares of large values that differ little would leave nothing of the variance.
  at::Tensor first = by_channel(x);
  auto* pivots = first.mutable_data_ptr<float>();
  for (int64_t c = 0; c < channels; ++c) pivots[c] = std::isfinite(static_cast<float>(in[c])) ? static_cast<float>(in[c]) : 0;
  const Padded pivot(first);
  const auto sums = sums_over(rows, channels, by_eights(channels, [&, channels = channels](int64_t row, int64_t c, auto lanes, __m256& sum, __m256& square) {
    const __m256 distance = lanes.take(in + row * channels + c) - pivot[c];
    sum += distance;
    square = _mm256_fmadd_ps(distance, distance, square);
  }));
  Moments moments{by_channel(x), by_channel(x)};
  for (int64_t c = 0; c < channels; ++c) {
    const auto at = static_cast<size_t>(c);
    const double mean = sums[0][at] / static_cast<double>(rows), variance = sums[1][at] / static_cast<double>(rows) - mean * mean;
    moments.mean.mutable_data_ptr<float>()[c] = static_cast<float>(pivots[c] + mean);
    moments.variance.mutable_data_ptr<float>()[c] = static_cast<float>(variance < 0 ? 0 : variance);
  }
  return moments;
}

template <class T, bool kAdds, bool kRelu>
void apply_rows(const T* in, const Padded& scale, const Padded& shift, const T* residual, T* out, int64_t begin, int64_t end, int64_t channels) {
  for (int64_t row = begin; row < end; ++row)
    each_eight(channels, [&](int64_t c, auto lanes) {
      const int64_t at = row * channels + c;
      __m256 z = _mm256_fmadd_ps(lanes.take(in + at), scale[c], shift[c]);
      if constexpr (kAdds) z += lanes.take(residual + at);
      lanes.put(out + at, kRelu ? relu_of(z) : z);
    });
}

/// Which part of the gradient counts: all; where scale · x + shift is positive; where the output is.
enum class Gate { open, relu, output };

template <class T, Gate kGate>
GradientSums sums_of(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean, const at::Tensor& scale, const at::Tensor& shift, const T* output, T* passed) {
  const auto [rows, channels] = rows_of(x);
  rows_of(gradient);
  const T *in = x.const_data_ptr<T>(), *from = gradient.const_data_ptr<T>();
  const Padded middle(mean), factor(scale), offset(shift);
  return as_tensors(sums_over(rows, channels, by_eights(channels, [&, channels = channels](int64_t row, int64_t c, auto lanes, __m256& sum, __m256& product) {
    const int64_t at = row * channels + c;
    const __m256 value = lanes.take(in + at);
    __m256 g = lanes.take(from + at);
    if constexpr (kGate == Gate::relu) g = where(positive(_mm256_fmadd_ps(value, factor[c], offset[c])), g);
    if constexpr (kGate == Gate::output) {
      g = where(positive(lanes.take(output + at)), g);
      lanes.put(passed + at, g);
    }
    sum += g;
    product = _mm256_fmadd_ps(g, value - middle[c], product);
  })), x);
}

/// of_gradient · g + of_x · x + rest
struct Combination {
  Padded of_gradient, of_x, rest;
  __m256 of(__m256 g, __m256 x, int64_t c) const { return _mm256_fmadd_ps(g, of_gradient[c], _mm256_fmadd_ps(x, of_x[c], rest[c])); }
};

template <class T, Gate kGate>
at::Tensor input_gradient_of(const at::Tensor& gradient, const at::Tensor& x, const Combination& by, const at::Tensor& scale, const at::Tensor& shift) {
  const auto [rows, channels] = rows_of(x);
  rows_of(gradient);
  at::Tensor result = like(x);
  const T *in = x.const_data_ptr<T>(), *from = gradient.const_data_ptr<T>();
  T* out = result.mutable_data_ptr<T>();
  const Padded factor(scale), offset(shift);
  each_piece(rows, [&, channels = channels](int64_t, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      each_eight(channels, [&](int64_t c, auto lanes) {
        const int64_t at = row * channels + c;
        const __m256 value = lanes.take(in + at);
        __m256 g = lanes.take(from + at);
        if constexpr (kGate == Gate::relu) g = where(positive(_mm256_fmadd_ps(value, factor[c], offset[c])), g);
        lanes.put(out + at, by.of(g, value, c));
      });
  });
  return result;
}

// ---- the stem's max-pool ----

constexpr int64_t kWindow = 3, kStride = 2, kPadding = 1;
constexpr int kNowhere = kWindow * kWindow;

int64_t pooled_size(int64_t size) { return (size + 2 * kPadding - kWindow) / kStride + 1; }

/// Pixels that meet in a window, or windows that a pixel is in: where each begins in memory, and its place in the window.
struct Meeting {
  std::array<int64_t, kWindow * kWindow> at;
  std::array<int, kWindow * kWindow> place;
  int count = 0;
  void add(int64_t begins, int64_t place_there) {
    at[static_cast<size_t>(count)] = begins;
    place[static_cast<size_t>(count++)] = static_cast<int>(place_there);
  }
  template <class F>
  void each(const F& work) const {
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) work(at[i], place[i]);
  }
};

struct Images {
  int64_t count, channels, height, width, pooled_height, pooled_width;

  int64_t pixels() const { return count * height * width; }
  int64_t windows() const { return count * pooled_height * pooled_width; }

  /// The input's pixels in a window, row by row.
  Meeting pixels_of(int64_t window) const {
    const int64_t line = window / pooled_width, image = line / pooled_height;
    const int64_t top = line % pooled_height * kStride - kPadding, left = window % pooled_width * kStride - kPadding;
    Meeting all;
    for (int64_t h = std::max<int64_t>(top, 0); h < std::min(top + kWindow, height); ++h)
      for (int64_t w = std::max<int64_t>(left, 0); w < std::min(left + kWindow, width); ++w) all.add(((image * height + h) * width + w) * channels, (h - top) * kWindow + w - left);
    return all;
  }
  /// The windows that an input's pixel is in: they begin one or two steps before it.
  Meeting windows_of(int64_t pixel) const {
    const int64_t line = pixel / width, image = line / height, h = line % height + kPadding, w = pixel % width + kPadding;
    const auto first = [](int64_t at) { return std::max<int64_t>(0, (at - kWindow + kStride) / kStride); };
    Meeting all;
    for (int64_t p = first(h); p <= std::min(h / kStride, pooled_height - 1); ++p)
      for (int64_t q = first(w); q <= std::min(w / kStride, pooled_width - 1); ++q)
        all.add(((image * pooled_height + p) * pooled_width + q) * channels, (h - p * kStride) * kWindow + w - q * kStride);
    return all;
  }
};
Images images_of(const at::Tensor& x) {
  rows_of(x);
  return {x.size(0), x.size(1), x.size(2), x.size(3), pooled_size(x.size(2)), pooled_size(x.size(3))};
}

template <class T>
Pooled pooled(const at::Tensor& x, const Padded& scale, const Padded& shift) {
  const Images s = images_of(x);
  const std::array<int64_t, 4> sizes{s.count, s.channels, s.pooled_height, s.pooled_width};
  Pooled result{at::empty(sizes, x.options().memory_format(at::MemoryFormat::ChannelsLast).requires_grad(false)),
                at::empty(sizes, x.options().dtype(at::kByte).memory_format(at::MemoryFormat::ChannelsLast).requires_grad(false))};
  const T* in = x.const_data_ptr<T>();
  T* values = result.values.mutable_data_ptr<T>();
  auto* places = result.places.mutable_data_ptr<uint8_t>();
  each_piece(s.windows(), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t window = begin; window < end; ++window) {
      const Meeting pixels = s.pixels_of(window);
      each_eight(s.channels, [&](int64_t c, auto lanes) {
        const __m256 factor = scale[c], offset = shift[c];
        __m256 best = _mm256_setzero_ps();   // ReLU: nothing below counts
        __m256i found = _mm256_set1_epi32(kNowhere);
        pixels.each([&](int64_t at, int place) {
          const __m256 z = _mm256_fmadd_ps(lanes.take(in + at + c), factor, offset);
          const __m256 wins = _mm256_or_ps(_mm256_cmp_ps(z, best, _CMP_GT_OQ), _mm256_cmp_ps(z, z, _CMP_UNORD_Q));
          best = _mm256_blendv_ps(best, z, wins);
          found = _mm256_blendv_epi8(found, _mm256_set1_epi32(place), _mm256_castps_si256(wins));
        });
        lanes.put(values + window * s.channels + c, best);
        lanes.put(places + window * s.channels + c, found);
      });
    }
  });
  return result;
}

template <class T>
GradientSums sums_of_pooled(const at::Tensor& gradient, const at::Tensor& places, const at::Tensor& x, const at::Tensor& mean) {
  const Images s = images_of(x);
  rows_of(gradient);
  const T *in = x.const_data_ptr<T>(), *from = gradient.const_data_ptr<T>();
  const auto* found = places.const_data_ptr<uint8_t>();
  const Padded middle(mean);
  return as_tensors(sums_over(s.windows(), s.channels, [&](int64_t first, int64_t count, float* sums, float* products) {
    for (int64_t window = first; window < first + count; ++window) {
      const Meeting pixels = s.pixels_of(window);
      each_eight(s.channels, [&](int64_t c, auto lanes) {
        const __m256 g = lanes.take(from + window * s.channels + c);
        const __m256i place_of = lanes.take(found + window * s.channels + c);
        __m256 chosen = _mm256_setzero_ps();   // the pixel that each value came from
        pixels.each([&](int64_t at, int place) { chosen = _mm256_blendv_ps(chosen, lanes.take(in + at + c), equal(place_of, place)); });
        const __m256 counted = _mm256_andnot_ps(equal(place_of, kNowhere), g);
        store(sums + c, load(sums + c) + counted);
        store(products + c, _mm256_fmadd_ps(counted, chosen - middle[c], load(products + c)));
      });
    }
  }), x);
}

template <class T>
at::Tensor input_gradient_of_pooled(const at::Tensor& gradient, const at::Tensor& places, const at::Tensor& x, const Combination& by) {
  const Images s = images_of(x);
  rows_of(gradient);
  at::Tensor result = like(x);
  const T *in = x.const_data_ptr<T>(), *from = gradient.const_data_ptr<T>();
  const auto* found = places.const_data_ptr<uint8_t>();
  T* out = result.mutable_data_ptr<T>();
  each_piece(s.pixels(), [&](int64_t, int64_t begin, int64_t end) {   // by pixel: no two threads write one
    for (int64_t pixel = begin; pixel < end; ++pixel) {
      const Meeting windows = s.windows_of(pixel);
      each_eight(s.channels, [&](int64_t c, auto lanes) {
        __m256 g = _mm256_setzero_ps();
        windows.each([&](int64_t at, int place) { g += where(equal(lanes.take(found + at + c), place), lanes.take(from + at + c)); });
        lanes.put(out + pixel * s.channels + c, by.of(g, lanes.take(in + pixel * s.channels + c), c));
      });
    }
  });
  return result;
}

template <class F>
auto by_type(const at::Tensor& x, F with) {
  switch (x.scalar_type()) {
    case at::kFloat: return with(float());
    case at::kBFloat16: return with(c10::BFloat16());
    case at::kHalf: return with(c10::Half());
    default: throw BrokenInvariant("fused kernels take float32, bfloat16 and float16");
  }
}

class CpuKernels : public NormKernels {
 public:
  Moments moments(const at::Tensor& x) const override {
    return by_type(x, [&](auto type) { return moments_of<decltype(type)>(x); });
  }
  at::Tensor apply(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& residual, bool relu) const override {
    const auto [rows, channels] = rows_of(x);
    if (residual.defined()) {
      rows_of(residual);
      TRAINOPT_CHECK(residual.scalar_type() == x.scalar_type() && residual.sizes() == x.sizes());
    }
    at::Tensor result = like(x);
    const Padded factor(scale), offset(shift);
    by_type(x, [&, channels = channels, rows = rows](auto type) {
      using T = decltype(type);
      const T* added = residual.defined() ? residual.const_data_ptr<T>() : nullptr;
      const auto run = added ? (relu ? &apply_rows<T, true, true> : &apply_rows<T, true, false>) : (relu ? &apply_rows<T, false, true> : &apply_rows<T, false, false>);
      each_piece(rows, [&](int64_t, int64_t begin, int64_t end) {
        run(x.const_data_ptr<T>(), factor, offset, added, result.mutable_data_ptr<T>(), begin, end, channels);
      });
    });
    return result;
  }
  GradientSums sums(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean) const override {
    return by_type(x, [&](auto type) { return sums_of<decltype(type), Gate::open>(gradient, x, mean, mean, mean, nullptr, nullptr); });
  }
  GradientSums sums_through_relu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean, const at::Tensor& scale, const at::Tensor& shift) const override {
    return by_type(x, [&](auto type) { return sums_of<decltype(type), Gate::relu>(gradient, x, mean, scale, shift, nullptr, nullptr); });
  }
  GradientSums sums_through_output(const at::Tensor& gradient, const at::Tensor& y, const at::Tensor& x, const at::Tensor& mean, at::Tensor& g) const override {
    rows_of(y);
    g = like(x);
    return by_type(x, [&](auto type) {
      using T = decltype(type);
      return sums_of<T, Gate::output>(gradient, x, mean, mean, mean, y.const_data_ptr<T>(), g.mutable_data_ptr<T>());
    });
  }
  at::Tensor input_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& of_gradient, const at::Tensor& of_x, const at::Tensor& rest) const override {
    return by_type(x, [&](auto type) { return input_gradient_of<decltype(type), Gate::open>(g, x, combination(of_gradient, of_x, rest), rest, rest); });
  }
  at::Tensor input_gradient_through_relu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& of_gradient, const at::Tensor& of_x, const at::Tensor& rest,
                                         const at::Tensor& scale, const at::Tensor& shift) const override {
    return by_type(x, [&](auto type) { return input_gradient_of<decltype(type), Gate::relu>(gradient, x, combination(of_gradient, of_x, rest), scale, shift); });
  }
  Pooled pool(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift) const override {
    return by_type(x, [&](auto type) { return pooled<decltype(type)>(x, Padded(scale), Padded(shift)); });
  }
  GradientSums sums_through_pool(const at::Tensor& gradient, const at::Tensor& places, const at::Tensor& x, const at::Tensor& mean) const override {
    return by_type(x, [&](auto type) { return sums_of_pooled<decltype(type)>(gradient, places, x, mean); });
  }
  at::Tensor input_gradient_through_pool(const at::Tensor& gradient, const at::Tensor& places, const at::Tensor& x, const at::Tensor& of_gradient, const at::Tensor& of_x,
                                         const at::Tensor& rest) const override {
    return by_type(x, [&](auto type) { return input_gradient_of_pooled<decltype(type)>(gradient, places, x, combination(of_gradient, of_x, rest)); });
  }

 private:
  static Combination combination(const at::Tensor& of_gradient, const at::Tensor& of_x, const at::Tensor& rest) { return {Padded(of_gradient), Padded(of_x), Padded(rest)}; }
};

}  // namespace

const NormKernels& cpu_kernels() {
  static const CpuKernels kernels;
  return kernels;
}

}  // namespace trainopt::fused_kernels
