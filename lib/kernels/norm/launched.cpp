#include "kernels/norm/launched.h"

#include "kernels/norm/launch_call.h"

namespace trainopt::kernels {
namespace {

class NormCall : public LaunchCall<device::NormOperands> {
 public:
  using LaunchCall::LaunchCall;

  /// A per-channel tensor that the pass changes.
  float* changed(at::Tensor values) const {
    by_channel(values);
    return values.mutable_data_ptr<float>();
  }

  Coefficients coefficients(const device::NormLaunches& launches, Gate gate, const Statistics& by) {
    return make_coefficients(launches, by, shape().pixels(), [&](const device::CoefficientOperands& results) {
      launches.coefficients(operands(), gate, results, queue());
    });
  }
};

}  // namespace

Statistics LaunchedNormKernels::statistics(const at::Tensor& x, const NormParameters& norm) const {
  NormCall call(x, device_);
  TRAINOPT_CHECK(norm.batches.device() == x.device() && norm.batches.scalar_type() == at::kLong);
  const Statistics made{call.make_by_channel(), call.make_by_channel(), call.make_by_channel(), call.make_by_channel()};
  call.make_partials(launches_);
  const auto n = static_cast<double>(call.shape().pixels());
  launches_.statistics(call.operands(),
                       {.weight = call.by_channel(norm.weight),
                        .bias = call.by_channel(norm.bias),
                        .running_mean = call.changed(norm.running_mean),
                        .running_var = call.changed(norm.running_var),
                        .batches = at::Tensor(norm.batches).mutable_data_ptr<int64_t>(),
                        .mean = made.mean.mutable_data_ptr<float>(),
                        .inverse = made.inverse.mutable_data_ptr<float>(),
                        .scale = made.scale.mutable_data_ptr<float>(),
                        .shift = made.shift.mutable_data_ptr<float>(),
                        .momentum = static_cast<float>(norm.momentum),
                        .epsilon = static_cast<float>(norm.epsilon),
                        .unbiased = static_cast<float>(n / (n - 1))},
                       call.queue());
  return made;
}

at::Tensor LaunchedNormKernels::apply(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift,
                                      const at::Tensor& residual, bool relu) const {
  NormCall call(x, device_);
  call.set_scale_shift(scale, shift);
  if (residual.defined()) call.operands().residual = call.samples(residual, call.shape());
  at::Tensor result = call.make_out();
  launches_.apply(call.operands(), relu, call.queue());
  return result;
}

Coefficients LaunchedNormKernels::coefficients(const at::Tensor& gradient, const at::Tensor& x,
                                               const Statistics& by) const {
  NormCall call(x, device_);
  call.set_gradient(gradient);
  return call.coefficients(launches_, Gate::open, by);
}

Coefficients LaunchedNormKernels::coefficients_through_relu(const at::Tensor& gradient, const at::Tensor& x,
                                                            const Statistics& by) const {
  NormCall call(x, device_);
  call.set_gradient(gradient);
  call.set_scale_shift(by.scale, by.shift);
  return call.coefficients(launches_, Gate::relu, by);
}

Coefficients LaunchedNormKernels::coefficients_through_output(const at::Tensor& gradient, const at::Tensor& y,
                                                              const at::Tensor& x, const Statistics& by,
                                                              at::Tensor& g) const {
  NormCall call(x, device_);
  call.set_gradient(gradient);
  call.operands().y = call.samples(y, call.shape());
  at::Tensor passed = call.make_out();  // `g` may alias `gradient`, so it is assigned last
  const Coefficients result = call.coefficients(launches_, Gate::output, by);
  g = std::move(passed);
  return result;
}

at::Tensor LaunchedNormKernels::input_gradient(const at::Tensor& g, const at::Tensor& x, const Statistics& by,
                                               const Coefficients& coefficients) const {
  NormCall call(x, device_);
  call.set_gradient(g);
  call.set_combination(by, coefficients);
  at::Tensor result = call.make_out();
  launches_.input_gradient(call.operands(), Gate::open, call.queue());
  return result;
}

at::Tensor LaunchedNormKernels::input_gradient_through_relu(const at::Tensor& gradient, const at::Tensor& x,
                                                            const Statistics& by,
                                                            const Coefficients& coefficients) const {
  NormCall call(x, device_);
  call.set_gradient(gradient);
  call.set_combination(by, coefficients);
  call.set_scale_shift(by.scale, by.shift);
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
