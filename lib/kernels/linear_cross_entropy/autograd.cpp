#include "kernels/linear_cross_entropy/autograd.h"

#include "device/differentiable.h"
#include "device/tensor.h"

#include <ATen/record_function.h>

namespace trainopt::kernels {
namespace {

LinearCrossEntropy run(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& target,
                       WantedGradients wanted, const LinearCrossEntropyKernels& kernels) {
  const int64_t rows = hidden.size(0), classes = weight.size(0);
  const Pieces pieces = kernels.pieces(rows, classes, hidden.scalar_type());
  RECORD_FUNCTION(kLinearCrossEntropyLabel,
                  std::vector<c10::IValue>({rows, classes, pieces.count, pieces.bytes,
                                            plain_bytes(rows, classes, hidden.scalar_type(), wanted.any())}));
  return kernels.run(hidden.contiguous(), weight.contiguous(), target.contiguous(), wanted);
}

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& target,
                                const LinearCrossEntropyKernels& kernels) {
  const bool enabled = at::GradMode::is_enabled();
  const WantedGradients wanted{.of_hidden = enabled && hidden.requires_grad(),
                               .of_weight = enabled && weight.requires_grad()};
  if (!wanted.any()) return run(hidden, weight, target, wanted, kernels).loss;
  const auto forward = [&](std::vector<at::Tensor>& saved) {
    LinearCrossEntropy result = run(hidden, weight, target, wanted, kernels);
    saved = {result.of_hidden, result.of_weight, result.share};
    return result.loss;
  };
  const auto backward = [type = hidden.scalar_type()](const BackwardCall& call) -> std::vector<at::Tensor> {
    RECORD_FUNCTION(kLinearCrossEntropyGradientLabel, std::vector<c10::IValue>());
    const at::Tensor factor = call.gradient * call.saved[2];
    const auto finished = [&](at::Tensor gradient) {
      if (!gradient.defined()) return gradient;
      gradient.mul_(factor);  // libtorch notices the change and refuses to use it again
      return gradient.to(type);
    };
    return {finished(call.saved[0]), finished(call.saved[1])};
  };
  return differentiable({hidden, weight}, forward, backward);
}

}  // namespace trainopt::kernels
