#include "kernels/pool/launched.h"

#include "kernels/norm/launch_call.h"

namespace trainopt::kernels {
namespace {

class PoolCall : public LaunchCall<device::PoolOperands> {
 public:
  PoolCall(const at::Tensor& x, at::DeviceType device) : LaunchCall(x, device) {
    // The kernels count the values of one image in 32 bits.
    TRAINOPT_CHECK(shape().pixels() / shape().images * shape().channels <= std::numeric_limits<uint32_t>::max());
  }

  const uint8_t* positions(const at::Tensor& tensor, const device::Shape& shape) const {
    TRAINOPT_CHECK(tensor.scalar_type() == at::kByte);
    return static_cast<const uint8_t*>(as_nhwc(tensor, shape));
  }
  void set_pooled_gradient(const at::Tensor& gradient, const at::Tensor& positions_of_it) {
    const device::Shape pooled = device::pooled(shape());
    operands().gradient = samples(gradient, pooled);
    operands().positions = positions(positions_of_it, pooled);
  }
};

}  // namespace

Pooled LaunchedPoolKernels::pool(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift) const {
  PoolCall call(x, device_);
  call.set_scale_shift(scale, shift);
  const device::Shape pooled_shape = device::pooled(call.shape());
  Pooled result{call.make_samples(pooled_shape, x.scalar_type()), call.make_samples(pooled_shape, at::kByte),
                call.make_samples(pooled_shape, x.scalar_type())};
  call.operands().out = result.values.mutable_data_ptr();
  call.operands().positions_out = result.positions.mutable_data_ptr<uint8_t>();
  call.operands().chosen_out = result.chosen.mutable_data_ptr();
  launches_.pool(call.operands(), call.queue());
  return result;
}

Coefficients LaunchedPoolKernels::coefficients(const at::Tensor& gradient, const Pooled& pooled, const Statistics& by,
                                               int64_t count) const {
  PoolCall call(pooled.chosen, device_);
  call.set_gradient(gradient);
  call.operands().positions = call.positions(pooled.positions, call.shape());
  return call.make_coefficients(launches_, by, count, [&](const device::CoefficientOperands& results) {
    launches_.coefficients(call.operands(), results, call.queue());
  });
}

at::Tensor LaunchedPoolKernels::input_gradient(const at::Tensor& gradient, const at::Tensor& positions,
                                               const at::Tensor& x, const Statistics& by,
                                               const Coefficients& coefficients) const {
  PoolCall call(x, device_);
  call.set_pooled_gradient(gradient, positions);
  call.set_combination(by, coefficients);
  at::Tensor result = call.make_out();
  launches_.input_gradient(call.operands(), call.queue());
  return result;
}

const PoolKernels* cuda_pool_kernels() {
  static const device::PoolLaunches* const launches = device::cuda_pool_launches();
  if (launches == nullptr) return nullptr;
  static const LaunchedPoolKernels kernels(*launches, at::kCUDA);
  return &kernels;
}

}  // namespace trainopt::kernels
