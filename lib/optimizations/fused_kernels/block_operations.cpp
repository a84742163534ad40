#include "optimizations/fused_kernels/block_operations.h"

#include "base/error.h"
#include "device/tensor.h"
#include "kernels/head/autograd.h"
#include "kernels/norm/autograd.h"
#include "kernels/pool/autograd.h"

namespace trainopt::fused_kernels {
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
          .momentum = BatchNorm2d::kMomentum,
          .epsilon = BatchNorm2d::kEpsilon};
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

}  // namespace trainopt::fused_kernels
