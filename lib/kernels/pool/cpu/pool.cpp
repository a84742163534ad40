#include "kernels/norm/cpu/by_rows.h"
#include "kernels/pool/cpu/rows.h"
#include "kernels/pool/pool.h"

namespace trainopt::kernels {
namespace {

using namespace by_rows;

struct Images {
  explicit Images(const at::Tensor& x)
      : shape{x.size(1), x.size(2), x.size(3), pooled_size(x.size(2)), pooled_size(x.size(3))},
        count(x.size(0)),
        size(shape.height * shape.width * shape.channels),
        pooled(shape.pooled_height * shape.pooled_width * shape.channels) {}
  static int64_t pooled_size(int64_t extent) { return (extent + 2 * kPadding - kWindow) / kStride + 1; }
  PoolShape shape;
  int64_t count, size, pooled;  // images; values per image, and per pooled image
};

class CpuPoolKernels : public PoolKernels {
 public:
  CpuPoolKernels(bool avx512, size_t streamed_bytes) : avx512_(avx512), streamed_bytes_(streamed_bytes) {}

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
      auto* positions = result.positions.mutable_data_ptr<uint8_t>();
      each_line(s.count, s.shape.pooled_height, s.shape.pooled_width * s.shape.channels,
                [&](int64_t image, int64_t line) {
                  const int64_t out = image * s.pooled;
                  loops<T>().pool(in + image * s.size, values + out, positions + out, chosen + out, s.shape, line,
                                  factor, offset);
                });
    });
    return result;
  }
  Coefficients coefficients(const at::Tensor& gradient, const Pooled& pooled, const Statistics& by,
                            int64_t count) const override {
    const auto [rows, channels] = rows_of(gradient, pooled.chosen);
    rows_of(pooled.positions);
    const Padded middle(by.mean);
    const auto* positions = pooled.positions.const_data_ptr<uint8_t>();
    const TwoSums sums = by_type(gradient, [&, rows = rows, channels = channels](auto type) {
      using T = decltype(type);
      const T *from = gradient.const_data_ptr<T>(), *chosen = pooled.chosen.const_data_ptr<T>();
      return sums_over<2>(rows, channels,
                          [&, run = loops<T>().sums](int64_t first, int64_t many, float* gradients, float* products) {
                            const int64_t at = first * channels;
                            run(from + at, positions + at, chosen + at, many, channels, middle, gradients, products);
                          });
    });
    return coefficients_of(sums, gradient, by, count);
  }
  at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& positions, const at::Tensor& x,
                            const Statistics& by, const Coefficients& coefficients) const override {
    rows_of(gradient);
    rows_of(x);
    const Images s(x);
    TRAINOPT_CHECK(gradient.scalar_type() == x.scalar_type() && gradient.numel() == s.count * s.pooled);
    at::Tensor result = like(x);
    const bool streamed = streams(result, streamed_bytes_);
    const Padded factor(by.scale), of_x(coefficients.of_x), rest(coefficients.rest);
    by_type(x, [&](auto type) {
      using T = decltype(type);
      const T *in = x.const_data_ptr<T>(), *from = gradient.const_data_ptr<T>();
      const auto* found = positions.const_data_ptr<uint8_t>();
      T* out = result.mutable_data_ptr<T>();
      each_line(s.count, s.shape.height, s.shape.width * s.shape.channels,
                // By pixel: no two threads write the same value.
                [&](int64_t image, int64_t line) {
                  const int64_t pooled = image * s.pooled, at = image * s.size;
                  loops<T>().input_gradient(from + pooled, found + pooled, in + at, out + at, s.shape, line,
                                            {factor, of_x, rest}, streamed);
                });
    });
    return result;
  }

 private:
  template <class T>
  const PoolRows<T>& loops() const {
    return avx512_ ? pool_rows_avx512<T>() : pool_rows_avx2<T>();
  }

  /// Calls work(image, line) for each line of `numbers` values, in parallel.
  template <class F>
  static void each_line(int64_t images, int64_t lines, int64_t numbers, const F& work) {
    each_piece(images * lines, numbers, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; ++at) work(at / lines, at % lines);
    });
  }

  bool avx512_;
  size_t streamed_bytes_;
};

}  // namespace

const PoolKernels& cpu_pool_kernels() { return *all_cpu_pool_kernels().back(); }

std::vector<const PoolKernels*> all_cpu_pool_kernels(bool always_stream) {
  static const CpuPoolKernels avx2(false, kStreamedBytes), avx512(true, kStreamedBytes), streaming_avx2(false, 0),
      streaming_avx512(true, 0);
  if (!has_avx512()) return {always_stream ? &streaming_avx2 : &avx2};
  if (always_stream) return {&streaming_avx2, &streaming_avx512};
  return {&avx2, &avx512};
}

}  // namespace trainopt::kernels
