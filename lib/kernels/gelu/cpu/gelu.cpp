#include "kernels/gelu/gelu.h"

#include "base/error.h"
#include "kernels/cpu/by_type.h"
#include "kernels/cpu/pieces.h"
#include "kernels/gelu/cpu/rows.h"

namespace trainopt::kernels {
namespace {

/// Checks that x is on the CPU, contiguous, and has rows of bias's width. Returns the number of rows.
int64_t rows_of(const at::Tensor& x, const at::Tensor& bias) {
  TRAINOPT_CHECK(x.dim() > 0 && x.is_cpu() && x.is_contiguous() && bias.dim() == 1 && bias.numel() > 0 &&
                 bias.numel() == x.size(-1));
  return x.numel() / bias.numel();
}

class CpuGeluKernels : public GeluKernels {
 public:
  explicit CpuGeluKernels(bool avx512) : avx512_(avx512) {}

  at::Tensor forward(const at::Tensor& x, const at::Tensor& bias, Gelu form) const override {
    const int64_t rows = rows_of(x, bias), width = bias.numel();
    at::Tensor result = at::empty(x.sizes(), x.options().requires_grad(false));
    const Padded offset(bias);
    by_type(x, [&](auto type) {
      using T = decltype(type);
      const T* in = x.const_data_ptr<T>();
      T* out = result.mutable_data_ptr<T>();
      parallel_ranges(rows, width, [&, run = loops<T>().forward](int64_t begin, int64_t end) {
        run(form == Gelu::tanh, in + begin * width, offset, out + begin * width, end - begin, width);
      });
    });
    return result;
  }

  GeluGradients backward(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& bias,
                         Gelu form) const override {
    const int64_t rows = rows_of(x, bias), width = bias.numel();
    TRAINOPT_CHECK(rows_of(gradient, bias) == rows && gradient.scalar_type() == x.scalar_type());
    GeluGradients result{at::empty(x.sizes(), x.options().requires_grad(false)),
                         at::empty(bias.sizes(), bias.options().requires_grad(false))};
    const Padded offset(bias);
    const Sums<1> sums = by_type(x, [&](auto type) {
      using T = decltype(type);
      const T *in = x.const_data_ptr<T>(), *from = gradient.const_data_ptr<T>();
      T* out = result.of_x.mutable_data_ptr<T>();
      return sums_over<1>(rows, width, [&, run = loops<T>().backward](int64_t first, int64_t count, float* of_bias) {
        const int64_t at = first * width;
        run(form == Gelu::tanh, from + at, in + at, offset, out + at, count, width, of_bias);
      });
    });
    std::copy(sums[0].begin(), sums[0].end(), result.of_bias.mutable_data_ptr<float>());
    return result;
  }

 private:
  template <class T>
  const GeluRows<T>& loops() const {
    return avx512_ ? gelu_rows_avx512<T>() : gelu_rows_avx2<T>();
  }

  bool avx512_;
};

}  // namespace

const GeluKernels& cpu_gelu_kernels() { return *all_cpu_gelu_kernels().back(); }

std::vector<const GeluKernels*> all_cpu_gelu_kernels() {
  static const CpuGeluKernels avx2(false), avx512(true);
  if (has_avx512()) return {&avx2, &avx512};
  return {&avx2};
}

}  // namespace trainopt::kernels
