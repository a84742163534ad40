#include "kernels/layer_norm/layer_norm.h"

#include "base/error.h"
#include "kernels/cpu/by_type.h"
#include "kernels/cpu/pieces.h"
#include "kernels/layer_norm/cpu/rows.h"

#include <c10/core/ScalarType.h>

#include <cmath>
#include <functional>

namespace trainopt::kernels {
namespace {

struct Size {
  int64_t rows, width;
};

Size size_of(const at::Tensor& tensor) {
  TRAINOPT_CHECK(tensor.dim() > 0 && tensor.is_cpu() && tensor.is_contiguous() && tensor.size(-1) > 0);
  return {tensor.numel() / tensor.size(-1), tensor.size(-1)};
}

at::Tensor make(at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, at::TensorOptions().dtype(type));
}

at::Tensor of(const std::vector<double>& numbers) {
  at::Tensor result = make({static_cast<int64_t>(numbers.size())}, at::kFloat);
  std::copy(numbers.begin(), numbers.end(), result.mutable_data_ptr<float>());
  return result;
}

/// The values of a row as float32, in memory of a tensor or in `room`, which has space for one row.
using Row = std::function<const float*(int64_t row, float* room)>;

class CpuLayerNormKernels : public LayerNormKernels {
 public:
  explicit CpuLayerNormKernels(bool avx512) : avx512_(avx512) {}

  LayerNormResult forward(const at::Tensor& residual, const at::Tensor& branch, const LayerNormParameters& norm,
                          at::ScalarType type) const override {
    const auto [rows, width] = size_of(residual);
    LayerNormResult result{.sum = residual,
                           .normalized = make(residual.sizes(), type),
                           .by = {make({rows}, at::kFloat), make({rows}, at::kFloat)}};
    if (branch.defined())
      result.sum = make(residual.sizes(), c10::promoteTypes(residual.scalar_type(), branch.scalar_type()));
    const Row values_of = branch.defined() ? sums_of(residual, branch, result.sum) : rows_of(residual);
    const Padded weight(norm.weight), bias(norm.bias);
    auto *means = result.by.mean.mutable_data_ptr<float>(), *rstds = result.by.rstd.mutable_data_ptr<float>();
    by_type(type, [&, width = width](auto value) {
      using T = decltype(value);
      T* out = result.normalized.template mutable_data_ptr<T>();
      parallel_ranges(rows, width, [&, &run = loops<T>()](int64_t begin, int64_t end) {
        auto room = room_for(width);
        for (int64_t row = begin; row < end; ++row) {
          const float* values = values_of(row, room.data());
          const RowMoments moments = run.moments(values, width);
          means[row] = moments.mean;
          rstds[row] = static_cast<float>(1 / std::sqrt(static_cast<double>(moments.variance) + norm.epsilon));
          run.normalize(values, width, {means[row], rstds[row]}, weight, bias, out + row * width);
        }
      });
    });
    return result;
  }

  LayerNormGradients backward(const Upstream& gradients, const at::Tensor& sum, const RowStatistics& by,
                              const at::Tensor& weight, at::ScalarType residual,
                              std::optional<at::ScalarType> branch) const override {
    const auto [rows, width] = size_of(sum);
    TRAINOPT_CHECK(size_of(gradients.of_normalized).width == width && gradients.of_normalized.numel() == sum.numel());
    LayerNormGradients result{
        .of_residual = make(sum.sizes(), residual), .of_branch = {}, .of_weight = {}, .of_bias = {}};
    if (branch) result.of_branch = *branch == residual ? result.of_residual : make(sum.sizes(), *branch);
    const Row values_of = rows_of(sum);
    const auto means_of = means_by_row(gradients.of_normalized, weight);
    const auto write = input_gradients(gradients.of_sum, sum.scalar_type(), result);
    const auto *means = by.mean.const_data_ptr<float>(), *rstds = by.rstd.const_data_ptr<float>();
    const auto sums =
        sums_over<2>(rows, width, [&, width = width](int64_t first, int64_t count, float* of_bias, float* of_weight) {
          auto room = room_for(width), scaled = room_for(width), written = room_for(width);
          for (int64_t row = first; row < first + count; ++row) {
            const RowScale scale{means[row], rstds[row]};
            const float* values = values_of(row, room.data());
            const RowMeans of_row = means_of(row, values, scale, scaled.data(), of_bias, of_weight);
            write(row, scaled.data(), values, scale, of_row, written.data());
          }
        });
    result.of_bias = of(sums[0]), result.of_weight = of(sums[1]);
    return result;
  }

 private:
  template <class T>
  const LayerNormRows<T>& loops() const {
    return avx512_ ? layer_norm_rows_avx512<T>() : layer_norm_rows_avx2<T>();
  }

  Row rows_of(const at::Tensor& tensor) const {
    return by_type(tensor, [&](auto type) -> Row {
      using T = decltype(type);
      return [run = loops<T>().widen, from = tensor.const_data_ptr<T>(), width = size_of(tensor).width](
                 int64_t row, float* room) { return run(from + row * width, width, room); };
    });
  }

  /// Writes a row of `sum` = residual + branch, then returns it.
  Row sums_of(const at::Tensor& residual, const at::Tensor& branch, const at::Tensor& sum) const {
    TRAINOPT_CHECK(branch.sizes() == residual.sizes() && size_of(branch).width > 0);
    const int64_t width = size_of(residual).width;
    if (branch.scalar_type() == residual.scalar_type())
      return by_type(branch, [&](auto type) -> Row {
        using T = decltype(type);
        return [run = loops<T>().add, left = residual.const_data_ptr<T>(), right = branch.const_data_ptr<T>(),
                to = sum.mutable_data_ptr<T>(), width](int64_t row, float* room) {
          const int64_t at = row * width;
          return run(left + at, right + at, to + at, width, room);
        };
      });
    // Which is added to which makes no difference; two 16-bit types become float32 as well.
    const bool turned = branch.scalar_type() == at::kFloat;
    const at::Tensor& right = turned ? residual : branch;
    return by_type(right, [&](auto type) -> Row {
      using T = decltype(type);
      return [run = loops<T>().add_to_float, left = rows_of(turned ? branch : residual),
              right = right.const_data_ptr<T>(), to = sum.mutable_data_ptr<float>(), width](int64_t row, float* room) {
        const int64_t at = row * width;
        run(left(row, room), right + at, to + at, width);
        return to + at;
      };
    });
  }

  using MeansOfRow = std::function<RowMeans(int64_t row, const float* values, RowScale by, float* scaled,
                                            float* of_bias, float* of_weight)>;
  MeansOfRow means_by_row(const at::Tensor& gradient, const at::Tensor& weight) const {
    return by_type(gradient, [&](auto type) -> MeansOfRow {
      using T = decltype(type);
      return [run = loops<T>().means, from = gradient.const_data_ptr<T>(), width = weight.numel(),
              weight = Padded(weight)](int64_t row, const float* values, RowScale by, float* scaled, float* of_bias,
                                       float* of_weight) {
        return run(from + row * width, values, width, by, weight, scaled, of_bias, of_weight);
      };
    });
  }

  using WriteRow = std::function<void(int64_t row, const float* scaled, const float* values, RowScale by,
                                      RowMeans means, float* room)>;
  /// Writes a row of the gradient of the sum, of type `sum`, and copies of it in other types.
  WriteRow input_gradients(const at::Tensor& of_sum, at::ScalarType sum, const LayerNormGradients& to) const {
    TRAINOPT_CHECK(!of_sum.defined() || (of_sum.scalar_type() == sum && size_of(of_sum).rows > 0));
    at::Tensor first;
    std::vector<std::function<void(int64_t row, const float* from)>> copies;
    for (const at::Tensor& tensor : {to.of_residual, to.of_branch}) {
      if (!tensor.defined() || tensor.is_same(first)) continue;
      if (tensor.scalar_type() == sum) {
        first = tensor;
        continue;
      }
      by_type(tensor, [&](auto type) {
        using T = decltype(type);
        copies.push_back([run = loops<T>().narrow, out = tensor.mutable_data_ptr<T>(), width = tensor.size(-1)](
                             int64_t row, const float* from) { run(from, width, out + row * width); });
      });
    }
    return by_type(sum, [&](auto type) -> WriteRow {
      using T = decltype(type);
      return [run = loops<T>().input_gradient, added = of_sum.defined() ? of_sum.const_data_ptr<T>() : nullptr,
              out = first.defined() ? first.mutable_data_ptr<T>() : nullptr, width = to.of_residual.size(-1),
              copies](int64_t row, const float* scaled, const float* values, RowScale by, RowMeans means, float* room) {
        // Only two different 16-bit types, which add to float32, leave no tensor of the sum's type.
        T* result = out ? out + row * width : reinterpret_cast<T*>(room);
        run(scaled, values, added ? added + row * width : nullptr, width, by, means, result);
        for (const auto& copy : copies) copy(row, reinterpret_cast<const float*>(result));
      };
    });
  }

  bool avx512_;
};

}  // namespace

const LayerNormKernels& cpu_layer_norm_kernels() { return *all_cpu_layer_norm_kernels().back(); }

std::vector<const LayerNormKernels*> all_cpu_layer_norm_kernels() {
  static const CpuLayerNormKernels avx2(false), avx512(true);
  if (has_avx512()) return {&avx2, &avx512};
  return {&avx2};
}

}  // namespace trainopt::kernels
