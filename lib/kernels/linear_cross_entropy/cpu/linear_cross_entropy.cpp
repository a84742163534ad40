#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

#include "base/error.h"
#include "device/tensor.h"
#include "kernels/cpu/by_type.h"
#include "kernels/cpu/row_loops.h"
#include "kernels/head/cpu/rows.h"
#include "kernels/head/head.h"
#include "kernels/linear_cross_entropy/pieces.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

namespace trainopt::kernels {
namespace {

/// Logits per thread below which starting another thread does not pay.
constexpr int64_t kLogitsPerThread = 32768;

class CpuLinearCrossEntropy : public LinearCrossEntropyInPieces {
 public:
  /// `avx512`: the loops within rows. `native`: products of 16-bit operands without conversion.
  CpuLinearCrossEntropy(bool avx512, bool native) : avx512_(avx512), native_(native) {}

 protected:
  void check(const at::Tensor& hidden, const at::Tensor& target, int64_t classes) const override {
    TRAINOPT_CHECK(hidden.is_cpu());
    const auto* targets = target.const_data_ptr<int64_t>();
    for (int64_t row = 0; row < target.size(0); ++row)
      TORCH_CHECK_INDEX(targets[row] == kIgnored || (targets[row] >= 0 && targets[row] < classes), "Target ",
                        targets[row], " is out of bounds.");
  }

  // libtorch's own float16 products on CPUs are up to a hundred times slower than float32.
  at::ScalarType product_type(at::ScalarType type) const override {
    return native_ && type == at::kBFloat16 ? type : at::kFloat;
  }

  void losses(const Piece& piece) const override {
    by_type(piece.buffer, [&](auto type) {
      using T = decltype(type);
      const int64_t stride = piece.buffer.size(1), classes = piece.classes;
      T* logits = piece.buffer.mutable_data_ptr<T>();
      const auto* targets = piece.target.const_data_ptr<int64_t>();
      auto* losses = piece.losses.mutable_data_ptr<float>();
      const auto grain = std::max<int64_t>(1, kLogitsPerThread / classes);
      at::parallel_for(0, piece.buffer.size(0), grain, [&, &run = loops<T>()](int64_t begin, int64_t end) {
        std::vector<float> exponentials(static_cast<size_t>(classes + kMaxLanes));
        for (int64_t row = begin; row < end; ++row) {
          T* of_row = logits + row * stride;
          const int64_t wanted = targets[row];
          if (wanted == kIgnored) {
            losses[row] = 0;
            if (piece.with_gradient) std::fill_n(of_row, classes, T(0));
            continue;
          }
          const RowSums sums = run.exponentials(of_row, classes, /*with_gap_sum=*/false, exponentials.data());
          losses[row] = sums.largest - static_cast<float>(of_row[wanted]) + std::log(sums.sum);
          if (!piece.with_gradient) continue;
          run.scale_shift(exponentials.data(), classes, 1 / sums.sum, 0, of_row);
          of_row[wanted] = static_cast<T>(exponentials[static_cast<size_t>(wanted)] / sums.sum - 1);
        }
      });
    });
  }

  void mean(const at::Tensor& losses, const at::Tensor& target, LinearCrossEntropy& result) const override {
    const auto* of_rows = losses.const_data_ptr<float>();
    const auto* targets = target.const_data_ptr<int64_t>();
    double sum = 0, count = 0;
    for (int64_t row = 0; row < losses.size(0); ++row)
      if (targets[row] != kIgnored) sum += static_cast<double>(of_rows[row]), ++count;
    *result.loss.mutable_data_ptr<float>() = static_cast<float>(sum / count);
    *result.share.mutable_data_ptr<float>() = static_cast<float>(1 / std::max(count, 1.0));
  }

 private:
  template <class T>
  const HeadRows<T>& loops() const {
    return avx512_ ? head_rows_avx512<T>() : head_rows_avx2<T>();
  }

  bool avx512_, native_;
};

}  // namespace

const LinearCrossEntropyKernels& cpu_linear_cross_entropy_kernels() {
  return *all_cpu_linear_cross_entropy_kernels().back();
}

std::vector<const LinearCrossEntropyKernels*> all_cpu_linear_cross_entropy_kernels() {
  static const CpuLinearCrossEntropy avx2(false, false), avx2_native(false, true), avx512(true, false),
      avx512_native(true, true);
  if (!has_avx512()) return {&avx2_native, &avx2};
  if (!__builtin_cpu_supports("avx512bf16")) return {&avx2_native, &avx2, &avx512_native, &avx512};
  return {&avx2_native, &avx2, &avx512, &avx512_native};
}

}  // namespace trainopt::kernels
