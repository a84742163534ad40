#include "optimizations/fused_kernels/fused_operations.h"

#include "base/error.h"
#include "device/autocast.h"
#include "device/backend_settings.h"
#include "device/differentiable.h"
#include "device/product.h"
#include "device/tensor.h"
#include "kernels/attention/attention.h"
#include "kernels/gelu/gelu.h"
#include "kernels/head/head.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/linear_cross_entropy/linear_cross_entropy.h"
#include "kernels/meta.h"
#include "kernels/norm/norm.h"
#include "kernels/pool/pool.h"

#include <ATen/Parallel.h>
#include <ATen/record_function.h>

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

namespace {

using kernels::NormParameters;
using kernels::Statistics;

at::Tensor nhwc(const at::Tensor& tensor) { return tensor.contiguous(at::MemoryFormat::ChannelsLast); }

NormParameters parameters_of(const BatchNorm2d& norm) {
  return {.weight = norm.weight,
          .bias = norm.bias,
          .running_mean = norm.running_mean,
          .running_var = norm.running_var,
          .batches = norm.num_batches_tracked,
          .momentum = norm.momentum,
          .epsilon = norm.epsilon};
}

/// Batch-norm in evaluation: a scale and a shift from the running statistics.
Statistics known(const BatchNorm2d& norm) {
  TRAINOPT_CHECK(!at::GradMode::is_enabled());  // gradients are not supported here
  return statistics_of(parameters_of(norm), norm.running_mean, norm.running_var);
}

class FusedBatchNormOperations : public BatchNormOperations {
 public:
  explicit FusedBatchNormOperations(const BlockKernels& kernels) : kernels_(kernels) {}

  at::Tensor batch_norm(const at::Tensor& input, const BatchNorm2d& norm,
                        const ForwardContext& context) const override {
    return normalized(input, norm, std::nullopt, false, context);
  }
  at::Tensor batch_norm_relu(const at::Tensor& input, const BatchNorm2d& norm,
                             const ForwardContext& context) const override {
    return normalized(input, norm, std::nullopt, true, context);
  }
  at::Tensor batch_norm_add_relu(const at::Tensor& input, const BatchNorm2d& norm, const at::Tensor& residual,
                                 const ForwardContext& context) const override {
    return normalized(input, norm, residual, true, context);
  }
  at::Tensor stem_pool(const at::Tensor& input, const BatchNorm2d& norm, const ForwardContext& context) const override {
    if (context.training) return normalize_and_pool(input, parameters_of(norm), kernels_.norm, kernels_.pool);
    const Statistics by = known(norm);
    return kernels_.pool.pool(nhwc(input), by.scale, by.shift).values;
  }

 private:
  at::Tensor normalized(const at::Tensor& input, const BatchNorm2d& norm, const std::optional<at::Tensor>& residual,
                        bool relu, const ForwardContext& context) const {
    if (context.training) return normalize(input, parameters_of(norm), residual, relu, kernels_.norm);
    const Statistics by = known(norm);
    return kernels_.norm.apply(nhwc(input), by.scale, by.shift, residual ? nhwc(*residual) : at::Tensor(), relu);
  }

  BlockKernels kernels_;
};

class FusedHeadOperations : public HeadOperations {
 public:
  explicit FusedHeadOperations(const kernels::HeadKernels& kernels) : kernels_(kernels) {}

  at::Tensor head(const at::Tensor& input, const Linear& linear, const ForwardContext& context) const override {
    return linear.forward(context.training ? average_pool(input, kernels_) : kernels_.mean(nhwc(input)));
  }

 private:
  const kernels::HeadKernels& kernels_;
};

}  // namespace

std::unique_ptr<BatchNormOperations> make_fused_batch_norm(const BlockKernels& kernels) {
  return std::make_unique<FusedBatchNormOperations>(kernels);
}

std::unique_ptr<HeadOperations> make_fused_head(const BlockKernels& kernels) {
  return std::make_unique<FusedHeadOperations>(kernels.head);
}

namespace {

class FusedAttentionOperations : public PlainAttentionOperations {
 public:
  bool keeps_written_attention() const override { return false; }
  at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const AttentionOptions& options, const ForwardContext& context) const override {
    const bool drops = context.training && options.dropout > 0,
               amx_helps = query.scalar_type() == at::kBFloat16 && __builtin_cpu_supports("amx-bf16"),
               too_few = query.size(0) * query.size(1) < at::get_num_threads();
    if (drops || amx_helps || too_few || current_attention_kernel() != AttentionKernel::automatic)
      return PlainAttentionOperations::attention(query, key, value, options, context);
    return kernels::attention({query, key, value, options.causal}, kernels::cpu_attention_kernels());
  }
};

}  // namespace

std::unique_ptr<AttentionOperations> make_fused_attention() { return std::make_unique<FusedAttentionOperations>(); }

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
          return onednn_linear(input, layer.weight.contiguous(), layer.bias);
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

TaskOutput FusedClassificationTask::loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                                         const ForwardContext& context) const {
  at::Tensor outputs = model.forward(input, context);
  at::Tensor loss = kernels::cross_entropy(outputs, target, label_smoothing_, kernels_);
  return {std::move(loss), std::move(outputs)};
}

namespace {

static_assert(kIgnoredTarget == kernels::LinearCrossEntropyKernels::kIgnored);

class FusedLanguageHead : public LanguageHeadOperations {
 public:
  explicit FusedLanguageHead(const kernels::LinearCrossEntropyKernels& kernels) : kernels_(kernels) {}

  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& target) const override {
    const at::ScalarType type = autocast_type(hidden.device().type()).value_or(hidden.scalar_type());
    return kernels::linear_cross_entropy(hidden.flatten(0, -2), weight, target.flatten(), type, kernels_);
  }

 private:
  const kernels::LinearCrossEntropyKernels& kernels_;
};

}  // namespace

const kernels::LinearCrossEntropyKernels& language_head_kernels(at::Device device) {
  if (device.is_meta()) return kernels::meta_linear_cross_entropy_kernels();
  if (device.is_cpu()) return kernels::cpu_linear_cross_entropy_kernels();
  const auto* on_gpu = kernels::cuda_linear_cross_entropy_kernels();
  TRAINOPT_CHECK(on_gpu != nullptr);
  return *on_gpu;
}

std::unique_ptr<LanguageHeadOperations> make_fused_language_head(const kernels::LinearCrossEntropyKernels& kernels) {
  return std::make_unique<FusedLanguageHead>(kernels);
}

}  // namespace trainopt::fused_kernels
