// What every form of NormKernels must give: the plain form's results, in every type and shape, and libtorch's
// gradients. On any device.
#pragma once

#include "model/builder.h"
#include "optimizations/fused_kernels/block_operations.h"
#include "support/catch.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

namespace trainopt::test {

using namespace trainopt::fused_kernels;

inline const std::vector<std::vector<int64_t>> kNormShapes = {
    {1, 1, 1, 1}, {2, 3, 5, 7},    {1, 64, 8, 8}, {3, 65, 4, 6}, {2, 130, 7, 5}, {9, 256, 1, 1},
    {1, 7, 1, 9}, {4, 16, 33, 31}, {1, 13, 1, 1}, {2, 64, 7, 7}, {5, 24, 13, 1}, {1, 8, 2, 2}};
inline const std::vector<at::ScalarType> kNormTypes = {at::kFloat, at::kBFloat16, at::kHalf};

/// One rounding to the type.
inline double epsilon(at::ScalarType type) { return type == at::kFloat ? 1.2e-7 : type == at::kBFloat16 ? 8e-3 : 1e-3; }

inline at::Tensor random(const std::vector<int64_t>& shape, at::ScalarType type, at::Device device = at::kCPU,
                         double scale = 1, double offset = 0) {
  return (at::randn(shape) * scale + offset).to(device, type).contiguous(at::MemoryFormat::ChannelsLast);
}

/// What a pass needs by channel.
struct ByChannel {
  explicit ByChannel(int64_t channels, at::Device device = at::kCPU)
      : scale(at::randn({channels}).to(device)),
        shift(at::randn({channels}).to(device)),
        mean(at::randn({channels}).to(device)) {}
  at::Tensor scale, shift, mean;
};

inline void check_near(const at::Tensor& got, const at::Tensor& wanted, double tolerance) {
  REQUIRE(got.sizes() == wanted.sizes());
  REQUIRE(got.scalar_type() == wanted.scalar_type());
  const at::Tensor a = got.to(at::kDouble), b = wanted.to(at::kDouble);
  CHECK(at::allclose(a, b, tolerance, tolerance * std::max(1.0, b.abs().nan_to_num(0, 0, 0).max().item<double>()),
                     /*equal_nan=*/true));
}
inline void check_near(const GradientSums& got, const GradientSums& wanted, double tolerance) {
  check_near(got.gradient, wanted.gradient, tolerance);
  check_near(got.product, wanted.product, tolerance);
}

/// Every pass over `x` beside the reference's.
inline void check_passes(const NormKernels& fast, const at::Tensor& x) {
  const NormKernels& plain = reference_kernels();
  const auto shape = x.sizes().vec();
  const auto type = x.scalar_type();
  const at::Tensor gradient = random(shape, type, x.device()), residual = random(shape, type, x.device());
  const ByChannel by(shape[1], x.device());
  const double once = 2 * epsilon(type);
  const Moments moments = fast.moments(x), plain_moments = plain.moments(x);
  check_near(moments.mean, plain_moments.mean, 1e-6);
  check_near(moments.variance, plain_moments.variance, 3e-6);
  for (const bool relu : {false, true}) {
    check_near(fast.apply(x, by.scale, by.shift, {}, relu), plain.apply(x, by.scale, by.shift, {}, relu), once);
    check_near(fast.apply(x, by.scale, by.shift, residual, relu), plain.apply(x, by.scale, by.shift, residual, relu),
               once);
  }
  check_near(fast.sums(gradient, x, by.mean), plain.sums(gradient, x, by.mean), 1e-5);
  check_near(fast.sums_through_relu(gradient, x, by.mean, by.scale, by.shift),
             plain.sums_through_relu(gradient, x, by.mean, by.scale, by.shift), 1e-5);
  at::Tensor g, plain_g;
  check_near(fast.sums_through_output(gradient, residual, x, by.mean, g),
             plain.sums_through_output(gradient, residual, x, by.mean, plain_g), 1e-5);
  CHECK(g.equal(plain_g));
  check_near(fast.input_gradient(gradient, x, by.scale, by.shift, by.mean),
             plain.input_gradient(gradient, x, by.scale, by.shift, by.mean), once);
  check_near(fast.input_gradient_through_relu(gradient, x, by.scale, by.shift, by.mean, by.scale, by.shift),
             plain.input_gradient_through_relu(gradient, x, by.scale, by.shift, by.mean, by.scale, by.shift), once);
  const Pooled pooled = fast.pool(x, by.scale, by.shift), wanted = plain.pool(x, by.scale, by.shift);
  check_near(pooled.values, wanted.values, once);
  const at::Tensor same = pooled.places == wanted.places;
  CHECK(same.to(at::kDouble).mean().item<double>() > 0.999);  // two values may be equal but for rounding
  CHECK((pooled.chosen == wanted.chosen)
            .logical_or(same.logical_not())
            .logical_or(wanted.places == 9)
            .all()
            .item<bool>());
  const at::Tensor of_pool = random(pooled.values.sizes().vec(), type, x.device());
  check_near(fast.sums_through_pool(of_pool, pooled, by.mean), plain.sums_through_pool(of_pool, pooled, by.mean), 1e-5);
  check_near(fast.input_gradient_through_pool(of_pool, pooled.places, x, by.scale, by.shift, by.mean),
             plain.input_gradient_through_pool(of_pool, pooled.places, x, by.scale, by.shift, by.mean), once);
}

inline void check_every_pass(const NormKernels& fast, at::Device device) {
  at::manual_seed(3);
  for (const auto type : kNormTypes)
    for (const auto& shape : kNormShapes) {
      INFO(type << " " << at::IntArrayRef(shape));
      check_passes(fast, random(shape, type, device, 2, 1));
    }
}

/// Values that are large beside their differences keep their variance.
inline void check_large_values(const NormKernels& fast, at::Device device) {
  at::manual_seed(4);
  for (const double size : {1e3, 1e4}) {
    const at::Tensor x = random({8, 5, 16, 16}, at::kFloat, device, 1e-5 * size, size);
    check_near(fast.moments(x).variance / (1e-10 * size * size),
               reference_kernels().moments(x).variance / (1e-10 * size * size), 1e-4);
  }
}

/// What is not a number stays visible.
inline void check_not_a_number(const NormKernels& fast, at::Device device) {
  at::manual_seed(5);
  for (const auto type : kNormTypes)
    for (const int64_t channels : {3, 8, 19, 32}) {
      INFO(type << " " << channels);
      at::Tensor x = random({2, channels, 6, 6}, type, device);
      const ByChannel by(channels, device);
      x[1][2][3][3] = std::numeric_limits<float>::quiet_NaN();
      x[0][1][0][0] = std::numeric_limits<float>::infinity();
      at::Tensor finite = at::ones({channels}, at::kBool);
      finite[1] = finite[2] = false;
      CHECK(fast.moments(x).mean.isfinite().cpu().equal(finite));
      check_near(fast.apply(x, by.scale, by.shift, {}, true),
                 reference_kernels().apply(x, by.scale, by.shift, {}, true), 2 * epsilon(type));
      const Pooled pooled = fast.pool(x, by.scale, by.shift), plain = reference_kernels().pool(x, by.scale, by.shift);
      CHECK(pooled.values.isnan().equal(plain.values.isnan()));
      CHECK((pooled.places == plain.places).logical_or(plain.values.isnan()).all().item<bool>());
    }
  const at::Tensor huge =
      at::full({1, 17, 2, 2}, 3.39e38).to(device, at::kBFloat16).contiguous(at::MemoryFormat::ChannelsLast);
  CHECK(fast.apply(huge, at::ones({17}, device), at::zeros({17}, device), {}, false).equal(huge));
}

/// Of equal values the pool chooses the first, whatever the sign of the scale and of zeros; NaN of either sign passes;
/// a scale of 0 makes all equal.
inline void check_pool_choices(const NormKernels& fast, at::Device device) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor levels = at::tensor({-1.0f, -0.0f, 0.0f, 0.5f, 1.0f});
  struct Case {
    const char* name;
    float scale, shift;  // of one channel; of the others ±1 and 1
  };
  at::manual_seed(11);
  for (const auto type : kNormTypes)
    for (const int64_t channels : {5, 35, 64, 75})
      for (const Case& one : {Case{"ordinary", 2, 0},
                              {"negative", -0.5, 0.25},
                              {"zero", 0, 1},
                              {"infinite", kInfinite, 0},
                              {"no number", kNan, 0},
                              {"shifted far", 1, kInfinite},
                              {"shifted nowhere", -1, kNan}})
        for (const float guest : {0.5f, kNan, -kNan, kInfinite, -kInfinite}) {
          INFO(type << " " << channels << " " << one.name << " " << guest);
          at::Tensor x =
              levels.index_select(0, at::randint(5, {2 * channels * 9 * 8}, at::kLong)).view({2, channels, 9, 8});
          x[1][2][4][3] = guest;
          x[0][channels - 1][5][5] = guest;
          x = x.to(device, type).contiguous(at::MemoryFormat::ChannelsLast);
          at::Tensor scale = at::randint(2, {channels}, at::kFloat) * 2 - 1, shift = at::ones({channels});
          scale[2] = one.scale, shift[2] = one.shift;
          const Pooled pooled = fast.pool(x, scale.to(device), shift.to(device)),
                       plain = reference_kernels().pool(x, scale.to(device), shift.to(device));
          const at::Tensor number = plain.values.isnan().logical_not();
          CHECK(pooled.values.isnan().logical_not().equal(number));
          CHECK(pooled.values.masked_select(number).equal(plain.values.masked_select(number)));
          CHECK(pooled.places.masked_select(number).equal(plain.places.masked_select(number)));
          const at::Tensor placed = number.logical_and(plain.places != 9);
          CHECK(pooled.chosen.masked_select(placed).equal(plain.chosen.masked_select(placed)));
        }
}

// ---- the blocks' operations ----

inline BatchNorm2d norm_of(int64_t channels, at::Device device) {
  Builder builder(device, 1);
  BatchNorm2d norm(builder, "bn", channels);
  const at::NoGradGuard no_grad;
  norm.weight.copy_(at::randn({channels}));
  norm.bias.copy_(at::randn({channels}));
  return norm;
}

struct Ran {
  at::Tensor output, of_input, of_weight, of_bias, of_residual, running_mean, running_var;
  int64_t batches = 0;
};

enum class Operation { norm, norm_relu, norm_add_relu, stem_pool };

inline Ran run(const BatchNormOperations& operations, Operation operation, const BatchNorm2d& norm,
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
  Ran ran;
  switch (operation) {
    case Operation::norm:
      ran.output = operations.batch_norm(x, norm, context);
      break;
    case Operation::norm_relu:
      ran.output = operations.batch_norm_relu(x, norm, context);
      break;
    case Operation::norm_add_relu:
      ran.output = operations.batch_norm_add_relu(x, norm, added, context);
      break;
    case Operation::stem_pool:
      ran.output = operations.stem_pool(x, norm, context);
      break;
  }
  ran.running_mean = norm.running_mean.clone();
  ran.running_var = norm.running_var.clone();
  ran.batches = norm.num_batches_tracked.item<int64_t>();
  if (!training) return ran;
  at::manual_seed(9);
  const at::Tensor seed = at::randn(ran.output.sizes()).to(ran.output.options());
  const bool adds = operation == Operation::norm_add_relu;
  std::vector<at::Tensor> inputs{x, norm.weight, norm.bias};
  if (adds) inputs.push_back(added);
  const auto gradients = torch::autograd::grad({ran.output}, inputs, {seed});
  ran.of_input = gradients[0];
  ran.of_weight = gradients[1];
  ran.of_bias = gradients[2];
  if (adds) ran.of_residual = gradients[3];
  return ran;
}

/// Block operations on `kernels`, and their gradients, are those of libtorch.
inline void check_block_operations(const NormKernels& kernels, at::Device device) {
  at::manual_seed(5);
  const auto fused = make_fused_batch_norm(kernels);
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
          const Ran wanted = run(plain, operation, norm, input, residual, training),
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

/// In 16 bits the output is within one rounding of float32's, gradients within a few.
inline void check_16_bits(const NormKernels& kernels, at::Device device) {
  at::manual_seed(6);
  const auto fused = make_fused_batch_norm(kernels);
  const PlainBatchNormOperations plain;
  for (const auto type : {at::kBFloat16, at::kHalf})
    for (const auto operation : {Operation::norm_relu, Operation::norm_add_relu, Operation::stem_pool}) {
      const at::Tensor input = random({4, 32, 12, 12}, type, device), residual = random({4, 32, 12, 12}, type, device);
      const BatchNorm2d norm = norm_of(32, device);
      const Ran got = run(*fused, operation, norm, input, residual, true);
      const Ran wide = run(plain, operation, norm, input.to(at::kFloat), residual.to(at::kFloat), true);
      CHECK(got.output.scalar_type() == type);
      check_near(got.output.to(at::kFloat), wide.output, epsilon(type));
      check_near(got.of_weight, wide.of_weight, 4 * epsilon(type));
      // A value that rounds to zero, or above another in its window, sends its gradient elsewhere; few do.
      const at::Tensor apart = (got.of_input.to(at::kFloat) - wide.of_input).abs();
      CHECK((apart > 0.05).to(at::kFloat).mean().item<float>() < 0.01);
    }
}

}  // namespace trainopt::test
