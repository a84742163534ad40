#include "kernels/gelu/gelu.h"

#include "kernels/tensors.h"

#include "device/tensor.h"

#include <ATen/ops/gelu_backward.h>

namespace trainopt::kernels {
namespace {

c10::string_view word_of(Gelu form) { return form == Gelu::tanh ? "tanh" : "none"; }

class ReferenceGeluKernels : public GeluKernels {
 public:
  at::Tensor forward(const at::Tensor& x, const at::Tensor& bias, Gelu form) const override {
    return at::gelu(wide(x) + bias, word_of(form)).to(x.scalar_type());
  }
  GeluGradients backward(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& bias,
                         Gelu form) const override {
    const at::Tensor of_x = at::gelu_backward(wide(gradient), wide(x) + bias, word_of(form));
    return {of_x.to(x.scalar_type()), of_x.view({-1, bias.numel()}).sum(0)};
  }
};

}  // namespace

const GeluKernels& reference_gelu_kernels() {
  static const ReferenceGeluKernels kernels;
  return kernels;
}

}  // namespace trainopt::kernels
