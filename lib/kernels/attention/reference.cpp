#include "kernels/attention/attention.h"

#include "device/tensor.h"

#include <ATen/ops/logsumexp.h>

#include <cmath>
#include <limits>

namespace trainopt::kernels {
namespace {

double scale_of(const AttentionInputs& inputs) { return 1 / std::sqrt(static_cast<double>(inputs.query.size(-1))); }

at::Tensor scores_of(const AttentionInputs& inputs) {
  at::Tensor scores =
      at::matmul(inputs.query.to(at::kFloat), inputs.key.to(at::kFloat).transpose(-2, -1)) * scale_of(inputs);
  if (!inputs.causal) return scores;
  const at::Tensor later = at::ones({scores.size(-2), scores.size(-1)}, scores.options().dtype(at::kBool)).triu_(1);
  return scores.masked_fill(later, -std::numeric_limits<double>::infinity());
}

class ReferenceAttentionKernels : public AttentionKernels {
 public:
  AttentionResult forward(const AttentionInputs& inputs) const override {
    const at::Tensor scores = scores_of(inputs);
    return {.output = at::matmul(scores.softmax(-1), inputs.value.to(at::kFloat)).to(inputs.query.scalar_type()),
            .log_sums = at::logsumexp(scores, -1)};
  }

  AttentionGradients backward(const at::Tensor& gradient, const AttentionInputs& inputs,
                              const at::Tensor& log_sums) const override {
    const auto type = inputs.query.scalar_type();
    const at::Tensor p = (scores_of(inputs) - log_sums.unsqueeze(-1)).exp(), g = gradient.to(at::kFloat);
    const at::Tensor of_p = at::matmul(g, inputs.value.to(at::kFloat).transpose(-2, -1)),
                     of_scores = p * (of_p - (p * of_p).sum(-1, true)) * scale_of(inputs);
    return {.of_query = at::matmul(of_scores, inputs.key.to(at::kFloat)).to(type),
            .of_key = at::matmul(of_scores.transpose(-2, -1), inputs.query.to(at::kFloat)).to(type),
            .of_value = at::matmul(p.transpose(-2, -1), g).to(type)};
  }
};

}  // namespace

const AttentionKernels& reference_attention_kernels() {
  static const ReferenceAttentionKernels kernels;
  return kernels;
}

}  // namespace trainopt::kernels
