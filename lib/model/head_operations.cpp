#include "model/head_operations.h"

#include "device/tensor.h"

namespace trainopt {

at::Tensor PlainHeadOperations::head(const at::Tensor& input, const Linear& linear, const ForwardContext&) const {
  return linear.forward(at::adaptive_avg_pool2d(input, {1, 1}).flatten(1));
}

}  // namespace trainopt
