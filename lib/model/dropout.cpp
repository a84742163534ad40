#include "model/dropout.h"

#include "device/tensor.h"

namespace trainopt {

at::Tensor dropout(const at::Tensor& input, double rate, const ForwardContext& context) {
  if (!context.training || rate == 0) return input;
  const at::Tensor mask = at::empty_like(input).bernoulli_(1 - rate, context.generator);
  return at::mul(input, mask).div_(1 - rate);  // scaled last: a 16-bit mask would round 1 / (1 - rate)
}

}  // namespace trainopt
