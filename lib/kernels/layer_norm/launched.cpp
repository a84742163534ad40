#include "kernels/layer_norm/launched.h"

#include "base/error.h"
#include "device/tensor.h"
#include "kernels/tensors.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/ScalarType.h>

#include <limits>

namespace trainopt::kernels {
namespace {

device::Samples written(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {dtype_of(tensor.scalar_type()), tensor.mutable_data_ptr()};
}

const float* by_column(const at::Tensor& values, const at::Tensor& rows) {
  TRAINOPT_CHECK(values.dim() == 1 && values.numel() == rows.size(-1) && values.device() == rows.device() &&
                 values.is_contiguous());
  return values.const_data_ptr<float>();
}
const float* by_row(const at::Tensor& values, int64_t rows) {
  TRAINOPT_CHECK(values.dim() == 1 && values.numel() == rows && values.is_contiguous());
  return values.const_data_ptr<float>();
}

int64_t count_of_rows(const at::Tensor& tensor) {
  TRAINOPT_CHECK(tensor.dim() > 0 && tensor.numel() > 0);
  const int64_t rows = tensor.numel() / tensor.size(-1);
  TRAINOPT_CHECK(rows <= std::numeric_limits<int32_t>::max());
  return rows;
}

}  // namespace

device::ConstSamples LaunchedLayerNormKernels::samples(const at::Tensor& tensor, const at::Tensor& like) const {
  if (!tensor.defined()) return {};
  TRAINOPT_CHECK(tensor.device().type() == device_ && tensor.device() == like.device() && tensor.is_contiguous() &&
                 tensor.sizes() == like.sizes());
  return {dtype_of(tensor.scalar_type()), tensor.const_data_ptr()};
}

LayerNormResult LaunchedLayerNormKernels::forward(const at::Tensor& residual, const at::Tensor& branch,
                                                  const LayerNormParameters& norm, at::ScalarType type) const {
  const int64_t rows = count_of_rows(residual);
  const c10::DeviceGuard guard(residual.device());
  LayerNormResult result{.sum = residual,
                         .normalized = empty_beside(residual.sizes(), residual, type),
                         .by = {empty_beside({rows}, residual), empty_beside({rows}, residual)}};
  if (branch.defined())
    result.sum =
        empty_beside(residual.sizes(), residual, c10::promoteTypes(residual.scalar_type(), branch.scalar_type()));
  launches_.forward({.rows = rows,
                     .width = residual.size(-1),
                     .residual = samples(residual, residual),
                     .branch = samples(branch, residual),
                     .sum = branch.defined() ? written(result.sum) : device::Samples{},
                     .normalized = written(result.normalized),
                     .weight = by_column(norm.weight, residual),
                     .bias = by_column(norm.bias, residual),
                     .mean = result.by.mean.mutable_data_ptr<float>(),
                     .rstd = result.by.rstd.mutable_data_ptr<float>(),
                     .epsilon = static_cast<float>(norm.epsilon)},
                    queue_of(residual.device()));
  return result;
}

LayerNormGradients LaunchedLayerNormKernels::backward(const Upstream& gradients, const at::Tensor& sum,
                                                      const RowStatistics& by, const at::Tensor& weight,
                                                      at::ScalarType residual,
                                                      std::optional<at::ScalarType> branch) const {
  const int64_t rows = count_of_rows(sum);
  const c10::DeviceGuard guard(sum.device());
  LayerNormGradients result{.of_residual = empty_beside(sum.sizes(), sum, residual),
                            .of_branch = {},
                            .of_weight = empty_beside(weight.sizes(), sum),
                            .of_bias = empty_beside(weight.sizes(), sum)};
  const bool two_types = branch && *branch != residual;
  if (branch) result.of_branch = two_types ? empty_beside(sum.sizes(), sum, *branch) : result.of_residual;
  device::LayerNormGradientOperands o{.rows = rows,
                                      .width = sum.size(-1),
                                      .of_normalized = samples(gradients.of_normalized, sum),
                                      .of_sum = samples(gradients.of_sum, sum),
                                      .sum = samples(sum, sum),
                                      .mean = by_row(by.mean, rows),
                                      .rstd = by_row(by.rstd, rows),
                                      .weight = by_column(weight, sum),
                                      .of_residual = written(result.of_residual),
                                      .of_branch = two_types ? written(result.of_branch) : device::Samples{},
                                      .of_weight = result.of_weight.mutable_data_ptr<float>(),
                                      .of_bias = result.of_bias.mutable_data_ptr<float>()};
  // Its memory is reused only in stream order, so after the pass.
  const at::Tensor partials = empty_beside({launches_.partials(o)}, sum);
  o.partials = partials.mutable_data_ptr<float>();
  launches_.backward(o, queue_of(sum.device()));
  return result;
}

const LayerNormKernels* cuda_layer_norm_kernels() {
  static const device::LayerNormLaunches* const launches = device::cuda_layer_norm_launches();
  if (launches == nullptr) return nullptr;
  static const LaunchedLayerNormKernels kernels(*launches, at::kCUDA);
  return &kernels;
}

}  // namespace trainopt::kernels
