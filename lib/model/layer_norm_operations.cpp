#include "model/layer_norm_operations.h"

#include "device/tensor.h"

namespace trainopt {

at::Tensor PlainLayerNormOperations::layer_norm(const at::Tensor& input, const LayerNorm& norm) const {
  return at::layer_norm(input, norm.weight.sizes(), norm.weight, norm.bias, norm.epsilon);
}

NormalisedSum PlainLayerNormOperations::add_layer_norm(const at::Tensor& residual, const at::Tensor& branch,
                                                       const LayerNorm& norm) const {
  const at::Tensor sum = residual + branch;
  return {sum, layer_norm(sum, norm)};
}

}  // namespace trainopt
