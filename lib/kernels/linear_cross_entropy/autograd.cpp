#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

#include "device/differentiable.h"
#include "device/tensor.h"

#include <ATen/record_function.h>

namespace trainopt::kernels {

at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& target,
                                at::ScalarType type, const LinearCrossEntropyKernels& kernels) {
  const bool enabled = at::GradMode::is_enabled();
  const WantedGradients wanted{.of_hidden = enabled && hidden.requires_grad(),
                               .of_weight = enabled && weight.requires_grad()};
  const auto run = [&] {
    return kernels.run(hidden.to(type).contiguous(), weight.to(type).contiguous(), target.contiguous(), wanted);
  };
  if (!wanted.any()) return run().loss;
  const auto forward = [&](std::vector<at::Tensor>& saved) {
    const int64_t rows = hidden.size(0), classes = weight.size(0);
    const Pieces pieces = kernels.pieces(rows, classes, type);
    RECORD_FUNCTION(kLinearCrossEntropyLabel, std::vector<c10::IValue>({rows, classes, pieces.count, pieces.bytes,
                                                                        plain_bytes(rows, classes, type)}));
    LinearCrossEntropy result = run();
    saved = {result.of_hidden, result.of_weight, result.share};
    return result.loss;
  };
  const auto backward = [of_hidden = hidden.scalar_type(),
                         of_weight = weight.scalar_type()](const BackwardCall& call) -> std::vector<at::Tensor> {
    RECORD_FUNCTION(kLinearCrossEntropyGradientLabel, std::vector<c10::IValue>());
    const at::Tensor factor = call.gradient * call.saved[2];
    const auto finished = [&](at::Tensor gradient, at::ScalarType to) {
      if (!gradient.defined()) return gradient;
      gradient.mul_(factor);  // libtorch notices the change and refuses to use it again
      return gradient.to(to);
    };
    return {finished(call.saved[0], of_hidden), finished(call.saved[1], of_weight)};
  };
  return differentiable({hidden, weight}, forward, backward);
}

}  // namespace trainopt::kernels
