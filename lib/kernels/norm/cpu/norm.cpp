#include "kernels/norm/cpu/by_rows.h"
#include "kernels/norm/cpu/rows.h"

namespace trainopt::kernels {
namespace {

using namespace by_rows;

class CpuNormKernels : public NormKernels {
 public:
  CpuNormKernels(bool avx512, size_t streamed_bytes) : avx512_(avx512), streamed_bytes_(streamed_bytes) {}

  Statistics statistics(const at::Tensor& x, const NormParameters& norm) const override {
    const auto [rows, channels] = rows_of(x);
    const Padded pivot(pivots_of(x));
    const TwoSums sums = by_type(x, [&, rows = rows, channels = channels](auto type) {
      using T = decltype(type);
      const T* in = x.const_data_ptr<T>();
      return sums_over<2>(
          rows, channels,
          [&, run = loops<T>().moments](int64_t first, int64_t count, float* distances, float* squares) {
            run(in + first * channels, count, channels, pivot, distances, squares);
          });
    });
    at::Tensor means = by_channel(x), variances = by_channel(x);
    for (int64_t c = 0; c < channels; ++c) {
      const auto at = static_cast<size_t>(c);
      const double mean = sums[0][at] / static_cast<double>(rows),
                   variance = sums[1][at] / static_cast<double>(rows) - mean * mean;
      means.mutable_data_ptr<float>()[c] = static_cast<float>(static_cast<double>(pivot[c]) + mean);
      variances.mutable_data_ptr<float>()[c] = static_cast<float>(variance < 0 ? 0 : variance);
    }
    return statistics_of_batch(norm, means, variances, rows);
  }

  at::Tensor apply(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& residual,
                   bool relu) const override {
    const auto [rows, channels] = residual.defined() ? rows_of(x, residual) : rows_of(x);
    at::Tensor result = like(x);
    const bool streamed = streams(result, streamed_bytes_);
    const Padded factor(scale), offset(shift);
    by_type(x, [&, rows = rows, channels = channels](auto type) {
      using T = decltype(type);
      const T *in = x.const_data_ptr<T>(), *added = residual.defined() ? residual.const_data_ptr<T>() : nullptr;
      T* out = result.mutable_data_ptr<T>();
      each_piece(rows, channels, [&](int64_t, int64_t begin, int64_t end) {
        const int64_t at = begin * channels;
        loops<T>().apply(in + at, added ? added + at : nullptr, out + at, end - begin, channels, factor, offset, relu,
                         streamed);
      });
    });
    return result;
  }

  Coefficients coefficients(const at::Tensor& gradient, const at::Tensor& x, const Statistics& by) const override {
    return gated_coefficients(Gate::open, gradient, x, by);
  }
  Coefficients coefficients_through_relu(const at::Tensor& gradient, const at::Tensor& x,
                                         const Statistics& by) const override {
    return gated_coefficients(Gate::relu, gradient, x, by);
  }
  Coefficients coefficients_through_output(const at::Tensor& gradient, const at::Tensor& y, const at::Tensor& x,
                                           const Statistics& by, at::Tensor& g) const override {
    rows_of(x, y);
    at::Tensor passed = like(x);  // `g` may alias `gradient`, so it is assigned last
    const Coefficients result = gated_coefficients(Gate::output, gradient, x, by, y, passed);
    g = std::move(passed);
    return result;
  }

  at::Tensor input_gradient(const at::Tensor& g, const at::Tensor& x, const Statistics& by,
                            const Coefficients& coefficients) const override {
    return gated_input_gradient(Gate::open, g, x, by, coefficients);
  }
  at::Tensor input_gradient_through_relu(const at::Tensor& gradient, const at::Tensor& x, const Statistics& by,
                                         const Coefficients& coefficients) const override {
    return gated_input_gradient(Gate::relu, gradient, x, by, coefficients);
  }

 private:
  template <class T>
  const NormRows<T>& loops() const {
    return avx512_ ? norm_rows_avx512<T>() : norm_rows_avx2<T>();
  }

  /// The tensor's first row. For large values that differ little, sums of plain squares would lose the variance;
  /// squares of distances from this row keep it.
  static at::Tensor pivots_of(const at::Tensor& x) {
    return x.as_strided({x.size(1)}, {1}).to(at::kFloat).nan_to_num(0, 0, 0);
  }

  Coefficients gated_coefficients(Gate gate, const at::Tensor& gradient, const at::Tensor& x, const Statistics& by,
                                  const at::Tensor& y = {}, const at::Tensor& g = {}) const {
    const auto [rows, channels] = rows_of(x, gradient);
    const Padded middle(by.mean), factor(by.scale), offset(by.shift);
    const TwoSums sums = by_type(x, [&, rows = rows, channels = channels](auto type) {
      using T = decltype(type);
      const T *in = x.const_data_ptr<T>(), *from = gradient.const_data_ptr<T>(),
              *output = y.defined() ? y.const_data_ptr<T>() : in;
      T* passed = g.defined() ? g.mutable_data_ptr<T>() : nullptr;
      return sums_over<2>(rows, channels,
                          [&, run = loops<T>().sums](int64_t first, int64_t count, float* gradients, float* products) {
                            const int64_t at = first * channels;
                            run(gate, from + at, in + at, output + at, passed ? passed + at : nullptr, count, channels,
                                middle, factor, offset, gradients, products);
                          });
    });
    return coefficients_of(sums, x, by, rows);
  }

  at::Tensor gated_input_gradient(Gate gate, const at::Tensor& gradient, const at::Tensor& x, const Statistics& by,
                                  const Coefficients& coefficients) const {
    const auto [rows, channels] = rows_of(x, gradient);
    at::Tensor result = like(x);
    const bool streamed = streams(result, streamed_bytes_);
    const Padded factor(by.scale), of_x(coefficients.of_x), rest(coefficients.rest), offset(by.shift);
    by_type(x, [&, rows = rows, channels = channels](auto type) {
      using T = decltype(type);
      const T *in = x.const_data_ptr<T>(), *from = gradient.const_data_ptr<T>();
      T* out = result.mutable_data_ptr<T>();
      each_piece(rows, channels, [&](int64_t, int64_t begin, int64_t end) {
        const int64_t at = begin * channels;
        loops<T>().input_gradient(gate, from + at, in + at, out + at, end - begin, channels, {factor, of_x, rest},
                                  factor, offset, streamed);
      });
    });
    return result;
  }

  bool avx512_;
  size_t streamed_bytes_;
};

}  // namespace

const NormKernels& cpu_norm_kernels() { return *all_cpu_norm_kernels().back(); }

std::vector<const NormKernels*> all_cpu_norm_kernels(bool always_stream) {
  static const CpuNormKernels avx2(false, kStreamedBytes), avx512(true, kStreamedBytes), streaming_avx2(false, 0),
      streaming_avx512(true, 0);
  if (!has_avx512()) return {always_stream ? &streaming_avx2 : &avx2};
  if (always_stream) return {&streaming_avx2, &streaming_avx512};
  return {&avx2, &avx512};
}

}  // namespace trainopt::kernels
