#include "kernels/norm/norm.h"

#include "device/tensor.h"
#include "kernels/tensors.h"

namespace trainopt::kernels {
namespace {

at::Tensor by_channel(const at::Tensor& values) { return values.view({1, -1, 1, 1}); }
at::Tensor over_rows(const at::Tensor& tensor) { return tensor.to(at::kDouble).sum({0, 2, 3}).to(at::kFloat); }

class ReferenceNormKernels : public NormKernels {
 public:
  Statistics statistics(const at::Tensor& x, const NormParameters& norm) const override {
    const auto [variance, mean] = at::var_mean(x.to(at::kDouble), {0, 2, 3}, /*correction=*/0);
    return statistics_of_batch(norm, mean.to(at::kFloat), variance.to(at::kFloat), values_per_channel(x));
  }
  at::Tensor apply(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& residual,
                   bool relu) const override {
    at::Tensor y = normalized(x, scale, shift);
    if (residual.defined()) y = y + wide(residual);
    return (relu ? y.relu() : y).to(x.scalar_type());
  }
  Coefficients coefficients(const at::Tensor& gradient, const at::Tensor& x, const Statistics& by) const override {
    return coefficients_of(over_rows(gradient), over_rows(wide(gradient) * (wide(x) - by_channel(by.mean))), by,
                           values_per_channel(x));
  }
  Coefficients coefficients_through_relu(const at::Tensor& gradient, const at::Tensor& x,
                                         const Statistics& by) const override {
    return coefficients(through(gradient, normalized(x, by.scale, by.shift)), x, by);
  }
  Coefficients coefficients_through_output(const at::Tensor& gradient, const at::Tensor& y, const at::Tensor& x,
                                           const Statistics& by, at::Tensor& g) const override {
    g = through(gradient, y);
    return coefficients(g, x, by);
  }
  at::Tensor input_gradient(const at::Tensor& g, const at::Tensor& x, const Statistics& by,
                            const Coefficients& coefficients) const override {
    return (by_channel(by.scale) * wide(g) + by_channel(coefficients.of_x) * wide(x) + by_channel(coefficients.rest))
        .to(x.scalar_type());
  }
  at::Tensor input_gradient_through_relu(const at::Tensor& gradient, const at::Tensor& x, const Statistics& by,
                                         const Coefficients& coefficients) const override {
    return input_gradient(through(gradient, normalized(x, by.scale, by.shift)), x, by, coefficients);
  }

 private:
  static at::Tensor normalized(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift) {
    return wide(x) * by_channel(scale) + by_channel(shift);
  }
  static at::Tensor through(const at::Tensor& gradient, const at::Tensor& y) {
    return at::where(y > 0, gradient, at::zeros({}, gradient.options()));
  }
};

}  // namespace

Statistics statistics_of(const NormParameters& norm, const at::Tensor& mean, const at::Tensor& variance) {
  const at::Tensor inverse = (variance + norm.epsilon).rsqrt(), scale = norm.weight * inverse;
  return {mean, inverse, scale, norm.bias - mean * scale};
}

Statistics statistics_of_batch(const NormParameters& norm, const at::Tensor& mean, const at::Tensor& variance,
                               int64_t count) {
  const auto n = static_cast<double>(count);
  at::Tensor batches = norm.batches, running_mean = norm.running_mean, running_var = norm.running_var;
  batches.add_(1);
  running_mean.lerp_(mean, norm.momentum);
  running_var.lerp_(variance * (n / (n - 1)), norm.momentum);
  return statistics_of(norm, mean, variance);
}

Coefficients coefficients_of(const at::Tensor& gradient_sum, const at::Tensor& product_sum, const Statistics& by,
                             int64_t count) {
  const double share = -1.0 / static_cast<double>(count);
  const at::Tensor of_weight = product_sum * by.inverse, of_x = by.scale * by.inverse * of_weight * share;
  return {gradient_sum, of_weight, of_x, by.scale * gradient_sum * share - of_x * by.mean};
}

const NormKernels& reference_norm_kernels() {
  static const ReferenceNormKernels kernels;
  return kernels;
}

}  // namespace trainopt::kernels
