#include "kernels/gelu/launched.h"

#include "base/error.h"
#include "device/tensor.h"
#include "kernels/tensors.h"

#include <c10/core/DeviceGuard.h>

#include <limits>

namespace trainopt::kernels {

device::GeluOperands LaunchedGeluKernels::operands(const at::Tensor& x, const at::Tensor& bias, Gelu form) const {
  TRAINOPT_CHECK(x.dim() > 0 && x.device().type() == device_ && x.is_contiguous() && x.numel() > 0 && bias.dim() == 1 &&
                 bias.numel() == x.size(-1) && bias.device() == x.device() && bias.is_contiguous());
  const int64_t rows = x.numel() / bias.numel();
  TRAINOPT_CHECK(rows <= std::numeric_limits<int32_t>::max());
  return {.dtype = dtype_of(x.scalar_type()),
          .tanh = form == Gelu::tanh,
          .rows = rows,
          .width = bias.numel(),
          .x = x.const_data_ptr(),
          .gradient = nullptr,
          .bias = bias.const_data_ptr<float>(),
          .out = nullptr};
}

at::Tensor LaunchedGeluKernels::forward(const at::Tensor& x, const at::Tensor& bias, Gelu form) const {
  device::GeluOperands o = operands(x, bias, form);
  const c10::DeviceGuard guard(x.device());
  at::Tensor result = at::empty(x.sizes(), x.options().requires_grad(false));
  o.out = result.mutable_data_ptr();
  launches_.forward(o, queue_of(x.device()));
  return result;
}

GeluGradients LaunchedGeluKernels::backward(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& bias,
                                            Gelu form) const {
  device::GeluOperands o = operands(x, bias, form);
  TRAINOPT_CHECK(gradient.sizes() == x.sizes() && gradient.scalar_type() == x.scalar_type() &&
                 gradient.device() == x.device() && gradient.is_contiguous());
  const c10::DeviceGuard guard(x.device());
  GeluGradients result{at::empty(x.sizes(), x.options().requires_grad(false)),
                       at::empty(bias.sizes(), bias.options().requires_grad(false))};
  o.gradient = gradient.const_data_ptr();
  o.out = result.of_x.mutable_data_ptr();
  // Its memory is reused only in stream order, so after the pass.
  const at::Tensor partials = at::empty({launches_.partials(o)}, result.of_bias.options());
  launches_.backward(o, {result.of_bias.mutable_data_ptr<float>(), partials.mutable_data_ptr<float>()},
                     queue_of(x.device()));
  return result;
}

const GeluKernels* cuda_gelu_kernels() {
  static const device::GeluLaunches* const launches = device::cuda_gelu_launches();
  if (launches == nullptr) return nullptr;
  static const LaunchedGeluKernels kernels(*launches, at::kCUDA);
  return &kernels;
}

}  // namespace trainopt::kernels
