#include "optimizations/fused_kernels/fused_linear.h"

#include "device/autocast.h"
#include "device/differentiable.h"
#include "device/product.h"
#include "device/tensor.h"

#include <ATen/record_function.h>

namespace trainopt::fused_kernels {
namespace {

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor result = at::empty({a.size(0), b.size(1)}, a.options());
  product_out(result, a, b);
  return result;
}

std::vector<at::Tensor> gradients(const BackwardCall& call) {
  RECORD_FUNCTION(kLinearGradientLabel, std::vector<c10::IValue>());
  const at::Tensor &input = call.saved[0], &weight = call.saved[1], rows = input.flatten(0, -2),
                   gradient = call.gradient.flatten(0, -2);
  std::vector<at::Tensor> results(call.needed.size());
  if (call.needed[0]) results[0] = product(gradient, weight).view(input.sizes());
  if (call.needed[1]) results[1] = product(gradient.t(), rows);
  if (results.size() > 2 && call.needed[2]) results[2] = gradient.sum(0);
  return results;
}

class FusedLinear : public LinearOperations {
 public:
  explicit FusedLinear(std::unique_ptr<LinearOperations> inner) : inner_(std::move(inner)) {}

  at::Tensor linear(const at::Tensor& input, const LinearTensors& layer) const override {
    const int64_t values = input.numel() * layer.weight.size(0);
    if (input.dim() < 2 || autocast_type(input.device().type()) || !onednn_is_faster(input, layer.weight, values))
      return inner_->linear(input, layer);
    RECORD_FUNCTION(kLinearLabel, std::vector<c10::IValue>());
    std::vector<at::Tensor> inputs{input, layer.weight};
    if (layer.bias.defined()) inputs.push_back(layer.bias);
    return differentiable(
        inputs,
        [&](std::vector<at::Tensor>& saved) {
          saved = {input, layer.weight};
          return onednn_linear(input, layer.weight, layer.bias);
        },
        gradients);
  }

 private:
  std::unique_ptr<LinearOperations> inner_;
};

}  // namespace

std::unique_ptr<LinearOperations> make_fused_linear(std::unique_ptr<LinearOperations> inner) {
  if (inner->rounds_to()) return inner;
  return std::make_unique<FusedLinear>(std::move(inner));
}

}  // namespace trainopt::fused_kernels
