#include "model/linear_operations.h"

#include "device/tensor.h"

namespace trainopt {

at::Tensor PlainLinearOperations::linear(const at::Tensor& input, const LinearTensors& layer) const {
  return at::linear(input, layer.weight, layer.bias);
}

}  // namespace trainopt
