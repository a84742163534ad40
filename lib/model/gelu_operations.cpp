#include "model/gelu_operations.h"

#include "device/tensor.h"

namespace trainopt {

at::Tensor PlainGeluOperations::linear_gelu(const at::Tensor& input, const Linear& linear, GeluForm form) const {
  return at::gelu(linear.forward(input), form == GeluForm::tanh ? "tanh" : "none");
}

}  // namespace trainopt
