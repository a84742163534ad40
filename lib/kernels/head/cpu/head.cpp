#include "base/error.h"
#include "device/tensor.h"
#include "kernels/cpu/by_type.h"
#include "kernels/cpu/pieces.h"
#include "kernels/head/cpu/rows.h"
#include "kernels/head/head.h"

#include <c10/util/Exception.h>

#include <cmath>
#include <numeric>

namespace trainopt::kernels {
namespace {

/// A contiguous matrix on the CPU.
void check_rows(const at::Tensor& rows) { TRAINOPT_CHECK(rows.dim() == 2 && rows.is_cpu() && rows.is_contiguous()); }

class CpuHeadKernels : public HeadKernels {
 public:
  explicit CpuHeadKernels(bool avx512) : avx512_(avx512) {}

  at::Tensor mean(const at::Tensor& x) const override {
    TRAINOPT_CHECK(x.dim() == 4 && x.is_cpu() && x.is_contiguous(at::MemoryFormat::ChannelsLast));
    const int64_t images = x.size(0), channels = x.size(1), pixels = x.size(2) * x.size(3);
    at::Tensor result = at::empty({images, channels}, x.options().requires_grad(false));
    by_type(x, [&](auto type) {
      using T = decltype(type);
      const T* in = x.const_data_ptr<T>();
      T* out = result.mutable_data_ptr<T>();
      parallel_ranges(images, pixels * channels, [&, run = loops<T>().mean](int64_t begin, int64_t end) {
        auto sums = room_for(channels);
        for (int64_t image = begin; image < end; ++image)
          run(in + image * pixels * channels, out + image * channels, pixels, channels, sums.data());
      });
    });
    return result;
  }

  at::Tensor mean_gradient(const at::Tensor& gradient, int64_t height, int64_t width) const override {
    check_rows(gradient);
    const int64_t images = gradient.size(0), channels = gradient.size(1), pixels = height * width;
    at::Tensor result =
        at::empty({images, channels, height, width},
                  gradient.options().memory_format(at::MemoryFormat::ChannelsLast).requires_grad(false));
    by_type(gradient, [&](auto type) {
      using T = decltype(type);
      const T* in = gradient.const_data_ptr<T>();
      T* out = result.mutable_data_ptr<T>();
      parallel_ranges(images, pixels * channels, [&, run = loops<T>().mean_gradient](int64_t begin, int64_t end) {
        for (int64_t image = begin; image < end; ++image)
          run(in + image * channels, out + image * pixels * channels, pixels, channels);
      });
    });
    return result;
  }

  CrossEntropy cross_entropy(const at::Tensor& logits, const at::Tensor& target, double smoothing) const override {
    check_rows(logits);
    const int64_t rows = logits.size(0), classes = logits.size(1);
    TRAINOPT_CHECK(target.dim() == 1 && target.size(0) == rows && target.is_cpu() &&
                   target.scalar_type() == at::kLong && target.is_contiguous());
    const auto* targets = target.const_data_ptr<int64_t>();
    for (int64_t row = 0; row < rows; ++row)
      TORCH_CHECK_INDEX(targets[row] >= 0 && targets[row] < classes, "Target ", targets[row], " is out of bounds.");
    CrossEntropy result{at::empty({}, logits.options().dtype(at::kFloat).requires_grad(false)),
                        at::empty(logits.sizes(), logits.options().requires_grad(false))};
    std::vector<float> losses(static_cast<size_t>(rows));
    const auto of_all = static_cast<float>(smoothing / static_cast<double>(classes)),
               of_target = static_cast<float>(1 - smoothing);
    const float scale = stored_gradient_scale(logits.scalar_type());
    by_type(logits, [&](auto type) {
      using T = decltype(type);
      const T* in = logits.const_data_ptr<T>();
      T* out = result.gradient.mutable_data_ptr<T>();
      parallel_ranges(rows, classes, [&, &run = loops<T>()](int64_t begin, int64_t end) {
        auto exponentials = room_for(classes);
        for (int64_t row = begin; row < end; ++row) {
          const int64_t at = row * classes, wanted = targets[row];
          const RowSums sums = run.exponentials(in + at, classes, smoothing > 0, exponentials.data());
          run.scale_shift(exponentials.data(), classes, scale / sums.sum, -of_all * scale, out + at);
          out[at + wanted] =
              static_cast<T>((exponentials[static_cast<size_t>(wanted)] / sums.sum - of_all - of_target) * scale);
          const float loss = of_target * (sums.largest - static_cast<float>(in[at + wanted])) +
                             std::log(sums.sum);  // the weights of the logarithm, 1 − s and s, add up to 1
          losses[static_cast<size_t>(row)] = smoothing > 0 ? loss + of_all * sums.gap_sum : loss;  // 0 · ∞ would be NaN
        }
      });
    });
    *result.loss.mutable_data_ptr<float>() =
        static_cast<float>(std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(rows));
    return result;
  }

  void finish_gradient(at::Tensor& gradient, const at::Tensor& upstream) const override {
    check_rows(gradient);
    TRAINOPT_CHECK(upstream.dim() == 0 && upstream.is_cpu() && upstream.scalar_type() == at::kFloat);
    const float factor = *upstream.const_data_ptr<float>() /
                         (static_cast<float>(gradient.size(0)) * stored_gradient_scale(gradient.scalar_type()));
    by_type(gradient, [&](auto type) {
      using T = decltype(type);
      T* values = gradient.mutable_data_ptr<T>();
      parallel_ranges(gradient.numel(), 1, [&, run = loops<T>().scale](int64_t begin, int64_t end) {
        run(values + begin, end - begin, factor);
      });
    });
  }

 private:
  template <class T>
  const HeadRows<T>& loops() const {
    return avx512_ ? head_rows_avx512<T>() : head_rows_avx2<T>();
  }

  bool avx512_;
};

}  // namespace

const HeadKernels& cpu_head_kernels() { return *all_cpu_head_kernels().back(); }

std::vector<const HeadKernels*> all_cpu_head_kernels() {
  static const CpuHeadKernels avx2(false), avx512(true);
  if (has_avx512()) return {&avx2, &avx512};
  return {&avx2};
}

}  // namespace trainopt::kernels
