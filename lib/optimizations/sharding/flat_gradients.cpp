#include "optimizations/sharding/flat_gradients.h"

#include "device/tensor.h"

namespace trainopt {

at::Tensor attach_flat_gradients(const NamedTensors& parameters) {
  int64_t count = 0;
  for (const auto& [name, parameter] : parameters) count += parameter.numel();
  const at::Tensor flat = at::zeros({count}, parameters.front().second.options().requires_grad(false));
  int64_t begin = 0;
  for (auto [name, parameter] : parameters) {
    parameter.mutable_grad() = flat.as_strided(parameter.sizes(), parameter.strides(), begin);
    begin += parameter.numel();
  }
  return flat;
}

}  // namespace trainopt
