#include "kernels/norm/norm.h"

#include "device/tensor.h"

namespace trainopt::kernels {
namespace {

at::Tensor wide(const at::Tensor& tensor) { return tensor.to(at::kFloat); }
at::Tensor by_channel(const at::Tensor& values) { return values.view({1, -1, 1, 1}); }
at::Tensor over_rows(const at::Tensor& tensor) { return tensor.to(at::kDouble).sum({0, 2, 3}).to(at::kFloat); }

class ReferenceNormKernels : public NormKernels {
 public:
  Moments moments(const at::Tensor& x) const override {
    const auto [variance, mean] = at::var_mean(x.to(at::kDouble), {0, 2, 3}, /*correction=*/0);
    return {mean.to(at::kFloat), variance.to(at::kFloat)};
  }
  at::Tensor apply(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& residual,
                   bool relu) const override {
    at::Tensor y = normalized(x, scale, shift);
    if (residual.defined()) y = y + wide(residual);
    return (relu ? y.relu() : y).to(x.scalar_type());
  }
  GradientSums sums(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean) const override {
    return {over_rows(gradient), over_rows(wide(gradient) * (wide(x) - by_channel(mean)))};
  }
  GradientSums sums_through_relu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean,
                                 const at::Tensor& scale, const at::Tensor& shift) const override {
    return sums(through(gradient, normalized(x, scale, shift)), x, mean);
  }
  GradientSums sums_through_output(const at::Tensor& gradient, const at::Tensor& y, const at::Tensor& x,
                                   const at::Tensor& mean, at::Tensor& g) const override {
    g = through(gradient, y);
    return sums(g, x, mean);
  }
  at::Tensor input_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& of_gradient,
                            const at::Tensor& of_x, const at::Tensor& rest) const override {
    return (by_channel(of_gradient) * wide(g) + by_channel(of_x) * wide(x) + by_channel(rest)).to(x.scalar_type());
  }
  at::Tensor input_gradient_through_relu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& of_gradient,
                                         const at::Tensor& of_x, const at::Tensor& rest, const at::Tensor& scale,
                                         const at::Tensor& shift) const override {
    return input_gradient(through(gradient, normalized(x, scale, shift)), x, of_gradient, of_x, rest);
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

ScaleShift scale_shift_of(const NormParameters& norm, const at::Tensor& mean, const at::Tensor& variance) {
  const at::Tensor inverse = (variance + norm.epsilon).rsqrt(), scale = norm.weight * inverse;
  return {inverse, scale, norm.bias - mean * scale};
}

ScaleShift NormKernels::scale_shift(const Moments& moments, int64_t count, const NormParameters& norm) const {
  const auto n = static_cast<double>(count);
  at::Tensor batches = norm.batches, mean = norm.running_mean, variance = norm.running_var;
  batches.add_(1);
  mean.lerp_(moments.mean, norm.momentum);
  variance.lerp_(moments.variance * (n / (n - 1)), norm.momentum);
  return scale_shift_of(norm, moments.mean, moments.variance);
}

Coefficients NormKernels::coefficients(const GradientSums& sums, const ScaleShift& scale_shift, const at::Tensor& mean,
                                       int64_t count) const {
  const double share = -1.0 / static_cast<double>(count);
  const at::Tensor of_weight = sums.product * scale_shift.inverse,
                   of_x = scale_shift.scale * scale_shift.inverse * of_weight * share;
  return {of_weight, of_x, scale_shift.scale * sums.gradient * share - of_x * mean};
}

const NormKernels& reference_norm_kernels() {
  static const ReferenceNormKernels kernels;
  return kernels;
}

}  // namespace trainopt::kernels
