#include "kernels/layer_norm/layer_norm.h"

#include "kernels/tensors.h"

#include "device/tensor.h"

namespace trainopt::kernels {
namespace {

class ReferenceLayerNormKernels : public LayerNormKernels {
 public:
  LayerNormResult forward(const at::Tensor& residual, const at::Tensor& branch, const LayerNormParameters& norm,
                          at::ScalarType type) const override {
    const at::Tensor sum = branch.defined() ? residual + branch : residual;
    const auto [variance, mean] = at::var_mean(wide(sum), {-1}, /*correction=*/0, /*keepdim=*/true);
    const at::Tensor rstd = (variance + norm.epsilon).rsqrt();
    return {.sum = sum,
            .normalized = ((wide(sum) - mean) * rstd * norm.weight + norm.bias).to(type),
            .by = {mean.flatten(), rstd.flatten()}};
  }

  LayerNormGradients backward(const Upstream& gradients, const at::Tensor& sum, const RowStatistics& by,
                              const at::Tensor& weight, at::ScalarType residual,
                              std::optional<at::ScalarType> branch) const override {
    const int64_t width = sum.size(-1);
    const at::Tensor mean = by.mean.unsqueeze(1), rstd = by.rstd.unsqueeze(1),
                     n = (wide(sum).view({-1, width}) - mean) * rstd, g = wide(gradients.of_normalized).view_as(n),
                     scaled = g * weight;
    const auto mean_of = [](const at::Tensor& rows) { return rows.mean(1, /*keepdim=*/true); };
    at::Tensor of_sum = (rstd * (scaled - mean_of(scaled) - n * mean_of(scaled * n))).view_as(sum);
    if (gradients.of_sum.defined()) of_sum = of_sum + wide(gradients.of_sum);
    LayerNormGradients result{.of_residual = of_sum.to(residual), .of_branch = {}, .of_weight = {}, .of_bias = {}};
    if (branch) result.of_branch = *branch == residual ? result.of_residual : of_sum.to(*branch);
    result.of_weight = (g * n).sum(0);
    result.of_bias = g.sum(0);
    return result;
  }
};

}  // namespace

const LayerNormKernels& reference_layer_norm_kernels() {
  static const ReferenceLayerNormKernels kernels;
  return kernels;
}

}  // namespace trainopt::kernels
