#include "model/convolution_operations.h"

#include "device/tensor.h"

namespace trainopt {

at::Tensor PlainConvolutionOperations::forward(const Conv2d::Shape& shape, const at::Tensor& input,
                                               const at::Tensor& weight) const {
  return at::conv2d(input, weight, {}, shape.stride, shape.padding);
}

}  // namespace trainopt
