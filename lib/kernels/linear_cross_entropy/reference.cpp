#include "device/tensor.h"
#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

namespace trainopt::kernels {
namespace {

class ReferenceLinearCrossEntropy : public LinearCrossEntropyKernels {
 public:
  LinearCrossEntropy run(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& target,
                         WantedGradients wanted) const override {
    const at::NoGradGuard no_grad;
    const at::Tensor states = hidden.to(at::kFloat), factors = weight.to(at::kFloat),
                     logits = at::linear(states, factors), counts = target.ne(kIgnored).to(at::kFloat);
    LinearCrossEntropy result{.loss = at::cross_entropy_loss(logits, target, {}, at::Reduction::Mean, kIgnored),
                              .of_hidden = {},
                              .of_weight = {},
                              .share = counts.sum().clamp_min(1).reciprocal()};
    at::Tensor gradient = logits.softmax(1);
    gradient.scatter_add_(1, target.clamp_min(0).unsqueeze(1), -at::ones({target.size(0), 1}, gradient.options()));
    gradient = at::where(counts.unsqueeze(1).to(at::kBool), gradient, at::zeros({}, gradient.options()));
    if (wanted.of_hidden) result.of_hidden = at::mm(gradient, factors);
    if (wanted.of_weight) result.of_weight = at::mm(gradient.t(), states);
    return result;
  }

  Pieces pieces(int64_t rows, int64_t classes, at::ScalarType) const override {
    return {.rows = rows, .count = 1, .stride = classes, .bytes = 2 * rows * classes * int64_t{sizeof(float)}};
  }
};

}  // namespace

const LinearCrossEntropyKernels& reference_linear_cross_entropy_kernels() {
  static const ReferenceLinearCrossEntropy kernels;
  return kernels;
}

}  // namespace trainopt::kernels
