#include "optimizations/fused_kernels/row_operations.h"

#include "device/autocast.h"
#include "device/tensor.h"
#include "kernels/gelu/autograd.h"
#include "kernels/layer_norm/autograd.h"
#include "kernels/meta.h"

namespace trainopt::fused_kernels {
namespace {

kernels::LayerNormParameters layer_norm_of(const LayerNorm& norm) { return {norm.weight, norm.bias, norm.epsilon}; }

class FusedLayerNormOperations : public LayerNormOperations {
 public:
  explicit FusedLayerNormOperations(const kernels::LayerNormKernels& kernels) : kernels_(kernels) {}

  at::Tensor layer_norm(const at::Tensor& input, const LayerNorm& norm) const override {
    return kernels::layer_norm(input, layer_norm_of(norm), type_of(input), kernels_);
  }
  NormalisedSum add_layer_norm(const at::Tensor& residual, const at::Tensor& branch,
                               const LayerNorm& norm) const override {
    auto [sum, normalised] =
        kernels::add_layer_norm(residual, branch, layer_norm_of(norm), type_of(residual), kernels_);
    return {std::move(sum), std::move(normalised)};
  }

 private:
  static at::ScalarType type_of(const at::Tensor& input) {
    return autocast_type(input.device().type()).value_or(input.scalar_type());
  }

  const kernels::LayerNormKernels& kernels_;
};

class FusedGeluOperations : public GeluOperations {
 public:
  explicit FusedGeluOperations(const kernels::GeluKernels& kernels) : kernels_(kernels) {}

  at::Tensor linear_gelu(const at::Tensor& input, const Linear& linear, GeluForm form) const override {
    return kernels::bias_gelu(linear.product(input), linear.bias,
                              form == GeluForm::tanh ? kernels::Gelu::tanh : kernels::Gelu::exact, kernels_);
  }

 private:
  const kernels::GeluKernels& kernels_;
};

}  // namespace

RowKernels row_kernels_for(at::Device device) {
  using namespace kernels;
  if (device.is_meta()) return {meta_layer_norm_kernels(), meta_gelu_kernels()};
  if (device.is_cpu()) return {cpu_layer_norm_kernels(), cpu_gelu_kernels()};
  const auto* layer_norm = cuda_layer_norm_kernels();
  const auto* gelu = cuda_gelu_kernels();
  TRAINOPT_CHECK(layer_norm && gelu);
  return {*layer_norm, *gelu};
}

std::unique_ptr<LayerNormOperations> make_fused_layer_norm(const RowKernels& kernels) {
  return std::make_unique<FusedLayerNormOperations>(kernels.layer_norm);
}

std::unique_ptr<GeluOperations> make_fused_gelu(const RowKernels& kernels) {
  return std::make_unique<FusedGeluOperations>(kernels.gelu);
}

}  // namespace trainopt::fused_kernels
