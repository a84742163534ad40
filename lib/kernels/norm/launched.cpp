#include "kernels/norm/launched.h"

#include "kernels/norm/launch_call.h"

namespace trainopt::kernels {
namespace {

using Call = LaunchCall<device::NormOperands>;

/// Checks and allocates per-channel values on one device.
class Channels {
 public:
  explicit Channels(const at::Tensor& like) : like_(like) {
    TRAINOPT_CHECK(like.dim() == 1 && like.scalar_type() == at::kFloat);
  }
  float* values(const at::Tensor& tensor) const {
    TRAINOPT_CHECK(tensor.device() == like_.device() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous() &&
                   tensor.sizes() == like_.sizes());
    return static_cast<float*>(tensor.data_ptr());
  }
  at::Tensor make() const { return at::empty(like_.sizes(), like_.options().requires_grad(false)); }

 private:
  const at::Tensor& like_;
};

}  // namespace

Moments LaunchedNormKernels::moments(const at::Tensor& x) const {
  Call call(x, device_);
  Moments result{call.make_first(), call.make_second()};
  call.make_partials(launches_);
  launches_.moments(call.operands(), call.queue());
  return result;
}

at::Tensor LaunchedNormKernels::apply(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift,
                                      const at::Tensor& residual, bool relu) const {
  Call call(x, device_);
  call.set_scale_shift(scale, shift);
  if (residual.defined()) call.operands().residual = call.samples(residual, call.shape());
  at::Tensor result = call.make_out();
  launches_.apply(call.operands(), relu, call.queue());
  return result;
}

ScaleShift LaunchedNormKernels::scale_shift(const Moments& moments, int64_t count, const NormParameters& norm) const {
  const Channels c(moments.mean);
  const c10::DeviceGuard guard(moments.mean.device());
  const ScaleShift result{c.make(), c.make(), c.make()};
  TRAINOPT_CHECK(norm.batches.device() == moments.mean.device() && norm.batches.scalar_type() == at::kLong);
  const auto n = static_cast<double>(count);
  launches_.scale_shift({.channels = moments.mean.size(0),
                         .mean = c.values(moments.mean),
                         .variance = c.values(moments.variance),
                         .weight = c.values(norm.weight),
                         .bias = c.values(norm.bias),
                         .running_mean = c.values(norm.running_mean),
                         .running_var = c.values(norm.running_var),
                         .batches = static_cast<int64_t*>(norm.batches.data_ptr()),
                         .inverse = c.values(result.inverse),
                         .scale = c.values(result.scale),
                         .shift = c.values(result.shift),
                         .momentum = static_cast<float>(norm.momentum),
                         .epsilon = static_cast<float>(norm.epsilon),
                         .unbiased = static_cast<float>(n / (n - 1))},
                        queue_of(moments.mean.device()));
  return result;
}

Coefficients LaunchedNormKernels::coefficients(const GradientSums& sums, const ScaleShift& scale_shift,
                                               const at::Tensor& mean, int64_t count) const {
  const Channels c(mean);
  const c10::DeviceGuard guard(mean.device());
  const Coefficients result{c.make(), c.make(), c.make()};
  launches_.coefficients({.channels = mean.size(0),
                          .gradient = c.values(sums.gradient),
                          .product = c.values(sums.product),
                          .mean = c.values(mean),
                          .inverse = c.values(scale_shift.inverse),
                          .scale = c.values(scale_shift.scale),
                          .of_weight = c.values(result.of_weight),
                          .of_x = c.values(result.of_x),
                          .rest = c.values(result.rest),
                          .share = static_cast<float>(-1.0 / static_cast<double>(count))},
                         queue_of(mean.device()));
  return result;
}

GradientSums LaunchedNormKernels::sums(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean) const {
  Call call(x, device_);
  call.set_gradient(gradient);
  GradientSums result = call.make_sums(launches_, mean);
  launches_.sums(call.operands(), Gate::open, call.queue());
  return result;
}

GradientSums LaunchedNormKernels::sums_through_relu(const at::Tensor& gradient, const at::Tensor& x,
                                                    const at::Tensor& mean, const at::Tensor& scale,
                                                    const at::Tensor& shift) const {
  Call call(x, device_);
  call.set_gradient(gradient);
  call.set_scale_shift(scale, shift);
  GradientSums result = call.make_sums(launches_, mean);
  launches_.sums(call.operands(), Gate::relu, call.queue());
  return result;
}

GradientSums LaunchedNormKernels::sums_through_output(const at::Tensor& gradient, const at::Tensor& y,
                                                      const at::Tensor& x, const at::Tensor& mean,
                                                      at::Tensor& g) const {
  Call call(x, device_);
  call.set_gradient(gradient);
  call.operands().y = call.samples(y, call.shape());
  at::Tensor passed = call.make_out();  // `g` may alias `gradient`, so it is assigned last
  GradientSums result = call.make_sums(launches_, mean);
  launches_.sums(call.operands(), Gate::output, call.queue());
  g = std::move(passed);
  return result;
}

at::Tensor LaunchedNormKernels::input_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& of_gradient,
                                               const at::Tensor& of_x, const at::Tensor& rest) const {
  Call call(x, device_);
  call.set_gradient(g);
  call.set_combination(of_gradient, of_x, rest);
  at::Tensor result = call.make_out();
  launches_.input_gradient(call.operands(), Gate::open, call.queue());
  return result;
}

at::Tensor LaunchedNormKernels::input_gradient_through_relu(const at::Tensor& gradient, const at::Tensor& x,
                                                            const at::Tensor& of_gradient, const at::Tensor& of_x,
                                                            const at::Tensor& rest, const at::Tensor& scale,
                                                            const at::Tensor& shift) const {
  Call call(x, device_);
  call.set_gradient(gradient);
  call.set_scale_shift(scale, shift);
  call.set_combination(of_gradient, of_x, rest);
  at::Tensor result = call.make_out();
  launches_.input_gradient(call.operands(), Gate::relu, call.queue());
  return result;
}

const NormKernels* cuda_norm_kernels() {
  static const device::NormLaunches* const launches = device::cuda_norm_launches();
  if (launches == nullptr) return nullptr;
  static const LaunchedNormKernels kernels(*launches, at::kCUDA);
  return &kernels;
}

}  // namespace trainopt::kernels
