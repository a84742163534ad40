// Checks of the model's block operations on any implementation of the kernels, on any device: results and gradients
// must be those of libtorch.
#pragma once

#include "kernels/norm_checks.h"
#include "model/builder.h"
#include "optimizations/fused_kernels/fused_operations.h"
#include "support/autograd.h"
#include "train/precision.h"

namespace trainopt::test {

inline BatchNorm2d norm_of(int64_t channels, at::Device device) {
  Builder builder(device, 1);
  BatchNorm2d norm(builder, "bn", channels);
  const at::NoGradGuard no_grad;
  norm.weight.copy_(at::randn({channels}));
  norm.bias.copy_(at::randn({channels}));
  return norm;
}

struct BlockResult {
  at::Tensor output, of_input, of_weight, of_bias, of_residual, running_mean, running_var;
  int64_t batches = 0;
};

enum class Operation { norm, norm_relu, norm_add_relu, stem_pool };

inline BlockResult run(const BatchNormOperations& operations, Operation operation, const BatchNorm2d& norm,
                       const at::Tensor& input, const at::Tensor& residual, bool training) {
  const at::Tensor x = input.detach().clone().requires_grad_(training),
                   added = residual.detach().clone().requires_grad_(training);
  {
    const at::NoGradGuard no_grad;
    norm.running_mean.fill_(0.5);
    norm.running_var.fill_(2);
    norm.num_batches_tracked.zero_();
  }
  at::AutoGradMode grad(training);
  const ForwardContext context{.training = training};
  BlockResult result;
  switch (operation) {
    case Operation::norm:
      result.output = operations.batch_norm(x, norm, context);
      break;
    case Operation::norm_relu:
      result.output = operations.batch_norm_relu(x, norm, context);
      break;
    case Operation::norm_add_relu:
      result.output = operations.batch_norm_add_relu(x, norm, added, context);
      break;
    case Operation::stem_pool:
      result.output = operations.stem_pool(x, norm, context);
      break;
  }
  result.running_mean = norm.running_mean.clone();
  result.running_var = norm.running_var.clone();
  result.batches = norm.num_batches_tracked.item<int64_t>();
  if (!training) return result;
  at::manual_seed(9);
  const at::Tensor seed = at::randn(result.output.sizes()).to(result.output.options());
  const bool adds = operation == Operation::norm_add_relu;
  std::vector<at::Tensor> inputs{x, norm.weight, norm.bias};
  if (adds) inputs.push_back(added);
  const auto gradients = torch::autograd::grad({result.output}, inputs, {seed});
  result.of_input = gradients[0];
  result.of_weight = gradients[1];
  result.of_bias = gradients[2];
  if (adds) result.of_residual = gradients[3];
  return result;
}

/// Block operations on `kernels` and their gradients match libtorch.
inline void check_block_operations(const fused_kernels::BlockKernels& kernels, at::Device device) {
  at::manual_seed(5);
  const auto fused = fused_kernels::make_fused_batch_norm(kernels);
  const PlainBatchNormOperations plain;
  for (const int64_t channels : {19, 24})
    for (const auto operation : {Operation::norm, Operation::norm_relu, Operation::norm_add_relu, Operation::stem_pool})
      for (const bool training : {true, false})
        for (const bool channels_last : {true, false}) {
          INFO(channels << " " << static_cast<int>(operation) << " " << training << " " << channels_last);
          at::Tensor input = (at::randn({4, channels, 9, 11}) * 3 + 1).to(device),
                     residual = at::randn({4, channels, 9, 11}).to(device);
          if (channels_last) input = input.contiguous(at::MemoryFormat::ChannelsLast);
          const BatchNorm2d norm = norm_of(channels, device);
          const BlockResult wanted = run(plain, operation, norm, input, residual, training),
                            got = run(*fused, operation, norm, input, residual, training);
          check_near(got.output, wanted.output, 1e-5);
          check_near(got.running_mean, wanted.running_mean, 1e-6);
          check_near(got.running_var, wanted.running_var, 1e-6);
          CHECK(got.batches == wanted.batches);
          if (!training) continue;
          check_near(got.of_input, wanted.of_input, 2e-5);
          check_near(got.of_weight, wanted.of_weight, 2e-5);
          check_near(got.of_bias, wanted.of_bias, 2e-5);
          if (operation == Operation::norm_add_relu) check_near(got.of_residual, wanted.of_residual, 1e-6);
        }
}

/// 16-bit outputs are within one rounding of float32, gradients within a few.
inline void check_16_bits(const fused_kernels::BlockKernels& kernels, at::Device device) {
  at::manual_seed(6);
  const auto fused = fused_kernels::make_fused_batch_norm(kernels);
  const PlainBatchNormOperations plain;
  for (const auto type : {at::kBFloat16, at::kHalf})
    for (const auto operation : {Operation::norm_relu, Operation::norm_add_relu, Operation::stem_pool}) {
      const at::Tensor input = random({4, 32, 12, 12}, type, device), residual = random({4, 32, 12, 12}, type, device);
      const BatchNorm2d norm = norm_of(32, device);
      const BlockResult got = run(*fused, operation, norm, input, residual, true);
      const BlockResult wide = run(plain, operation, norm, input.to(at::kFloat), residual.to(at::kFloat), true);
      CHECK(got.output.scalar_type() == type);
      check_near(got.output.to(at::kFloat), wide.output, epsilon(type));
      check_near(got.of_weight, wide.of_weight, 4 * epsilon(type));
      // The gradient of a value that rounds to zero, or above another in its window, goes to another position; few do.
      const at::Tensor difference = (got.of_input.to(at::kFloat) - wide.of_input).abs();
      CHECK((difference > 0.05).to(at::kFloat).mean().item<float>() < 0.01);
    }
}

struct HeadResult {
  at::Tensor output, of_input, of_weight, of_bias;
};

inline HeadResult run_head(const HeadOperations& operations, const at::Tensor& input, const Linear& linear,
                           std::optional<at::ScalarType> autocast_to) {
  const at::Tensor x = input.detach().clone(at::MemoryFormat::Preserve).requires_grad_();
  HeadResult result;
  {
    const AutocastGuard autocast(input.device().type(), autocast_to);
    result.output = operations.head(x, linear, {.training = true});
  }
  at::manual_seed(9);
  const auto gradients = torch::autograd::grad({result.output}, {x, linear.weight, linear.bias},
                                               {at::randn(result.output.sizes()).to(result.output.options())});
  result.of_input = gradients[0];
  result.of_weight = gradients[1];
  result.of_bias = gradients[2];
  return result;
}

/// The head and its gradients match libtorch, including their types under autocast.
inline void check_head(const fused_kernels::BlockKernels& kernels, at::Device device) {
  at::manual_seed(24);
  Builder builder(device, 1);
  const Linear linear(builder, "fc", 72, 10);
  const auto fused = fused_kernels::make_fused_head(kernels);
  const PlainHeadOperations plain;
  for (const bool channels_last : {true, false})
    for (const auto type : kNormTypes) {
      INFO(type << " " << channels_last);
      const auto autocast = type == at::kFloat ? std::nullopt : std::optional(type);
      at::Tensor input = at::randn({6, 72, 7, 5}).to(device, type);
      if (channels_last) input = input.contiguous(at::MemoryFormat::ChannelsLast);
      const HeadResult wanted = run_head(plain, input, linear, autocast),
                       got = run_head(*fused, input, linear, autocast);
      const double tolerance = type == at::kFloat ? 1e-6 : 2 * epsilon(type);
      check_near(got.output, wanted.output, tolerance);
      check_near(got.of_input, wanted.of_input, tolerance);
      check_near(got.of_weight, wanted.of_weight, tolerance);
      check_near(got.of_bias, wanted.of_bias, tolerance);
      CHECK(got.of_input.is_contiguous(at::MemoryFormat::ChannelsLast));
      const at::NoGradGuard no_grad;
      const AutocastGuard guard(device.type(), autocast);
      check_near(fused->head(input, linear, {.training = false}), plain.head(input, linear, {.training = false}),
                 tolerance);
    }
}

}  // namespace trainopt::test
