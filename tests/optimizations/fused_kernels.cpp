// Fused kernels against the plain form of each pass, and against libtorch's own operations and their gradients.
#include "model/builder.h"
#include "optimizations/fused_kernels/block_operations.h"
#include "support/catch.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

using namespace trainopt;
using namespace trainopt::fused_kernels;

namespace {

const std::vector<std::vector<int64_t>> kShapes = {{1, 1, 1, 1}, {2, 3, 5, 7}, {1, 64, 8, 8}, {3, 65, 4, 6}, {2, 130, 7, 5}, {9, 256, 1, 1}, {1, 7, 1, 9}, {4, 16, 33, 31}};
const std::vector<at::ScalarType> kTypes = {at::kFloat, at::kBFloat16, at::kHalf};

/// One rounding to the type.
double epsilon(at::ScalarType type) { return type == at::kFloat ? 1.2e-7 : type == at::kBFloat16 ? 8e-3 : 1e-3; }

at::Tensor random(const std::vector<int64_t>& shape, at::ScalarType type, double scale = 1, double offset = 0) {
  return (at::randn(shape) * scale + offset).to(type).contiguous(at::MemoryFormat::ChannelsLast);
}

/// What a pass needs by channel.
struct ByChannel {
  explicit ByChannel(int64_t channels) : scale(at::randn({channels})), shift(at::randn({channels})), mean(at::randn({channels})) {}
  at::Tensor scale, shift, mean;
};

void check_near(const at::Tensor& got, const at::Tensor& wanted, double tolerance) {
  REQUIRE(got.sizes() == wanted.sizes());
  REQUIRE(got.scalar_type() == wanted.scalar_type());
  const at::Tensor a = got.to(at::kDouble), b = wanted.to(at::kDouble);
  CHECK(at::allclose(a, b, tolerance, tolerance * std::max(1.0, b.abs().nan_to_num(0, 0, 0).max().item<double>()), /*equal_nan=*/true));
}
void check_near(const GradientSums& got, const GradientSums& wanted, double tolerance) {
  check_near(got.gradient, wanted.gradient, tolerance);
  check_near(got.product, wanted.product, tolerance);
}

}  // namespace

TEST_CASE("every pass gives what its plain form gives, in every type and shape") {
  at::manual_seed(3);
  const NormKernels &fast = cpu_kernels(), &plain = reference_kernels();
  for (const auto type : kTypes)
    for (const auto& shape : kShapes) {
      INFO(type << " " << at::IntArrayRef(shape));
      const at::Tensor x = random(shape, type, 2, 1), gradient = random(shape, type), residual = random(shape, type);
      const ByChannel by(shape[1]);
      const double once = 2 * epsilon(type);
      check_near(fast.moments(x).mean, plain.moments(x).mean, 1e-6);
      check_near(fast.moments(x).variance, plain.moments(x).variance, 3e-6);
      for (const bool relu : {false, true}) {
        check_near(fast.apply(x, by.scale, by.shift, {}, relu), plain.apply(x, by.scale, by.shift, {}, relu), once);
        check_near(fast.apply(x, by.scale, by.shift, residual, relu), plain.apply(x, by.scale, by.shift, residual, relu), once);
      }
      check_near(fast.sums(gradient, x, by.mean), plain.sums(gradient, x, by.mean), 1e-5);
      check_near(fast.sums_through_relu(gradient, x, by.mean, by.scale, by.shift), plain.sums_through_relu(gradient, x, by.mean, by.scale, by.shift), 1e-5);
      at::Tensor g, plain_g;
      check_near(fast.sums_through_output(gradient, residual, x, by.mean, g), plain.sums_through_output(gradient, residual, x, by.mean, plain_g), 1e-5);
      CHECK(g.equal(plain_g));
      check_near(fast.input_gradient(gradient, x, by.scale, by.shift, by.mean), plain.input_gradient(gradient, x, by.scale, by.shift, by.mean), once);
      check_near(fast.input_gradient_through_relu(gradient, x, by.scale, by.shift, by.mean, by.scale, by.shift),
                 plain.input_gradient_through_relu(gradient, x, by.scale, by.shift, by.mean, by.scale, by.shift), once);
      const Pooled pooled = fast.pool(x, by.scale, by.shift), wanted = plain.pool(x, by.scale, by.shift);
      check_near(pooled.values, wanted.values, once);
      CHECK((pooled.places == wanted.places).to(at::kDouble).mean().item<double>() > 0.999);   // two values may be equal but for rounding
      const at::Tensor of_pool = random(pooled.values.sizes().vec(), type);
      check_near(fast.sums_through_pool(of_pool, pooled.places, x, by.mean), plain.sums_through_pool(of_pool, pooled.places, x, by.mean), 1e-5);
      check_near(fast.input_gradient_through_pool(of_pool, pooled.places, x, by.scale, by.shift, by.mean),
                 plain.input_gradient_through_pool(of_pool, pooled.places, x, by.scale, by.shift, by.mean), once);
    }
}

TEST_CASE("values that are large beside their differences keep their variance") {
  const at::Tensor x = random({8, 5, 16, 16}, at::kFloat, 0.01, 1000);
  check_near(cpu_kernels().moments(x).variance, reference_kernels().moments(x).variance, 1e-4);
}

TEST_CASE("what is not a number stays visible") {
  for (const auto type : kTypes) {
    at::Tensor x = random({2, 3, 6, 6}, type);
    const ByChannel by(3);
    x[1][2][3][3] = std::numeric_limits<float>::quiet_NaN();
    x[0][1][0][0] = std::numeric_limits<float>::infinity();
    CHECK(cpu_kernels().moments(x).mean.isfinite().equal(at::tensor({1, 0, 0}).to(at::kBool)));
    check_near(cpu_kernels().apply(x, by.scale, by.shift, {}, true), reference_kernels().apply(x, by.scale, by.shift, {}, true), 2 * epsilon(type));
    CHECK(cpu_kernels().pool(x, by.scale, by.shift).values.isnan().equal(reference_kernels().pool(x, by.scale, by.shift).values.isnan()));
  }
  const at::Tensor huge = at::full({1, 1, 2, 2}, 3.39e38).to(at::kBFloat16).contiguous(at::MemoryFormat::ChannelsLast);
  CHECK(cpu_kernels().apply(huge, at::ones({1}), at::zeros({1}), {}, false).equal(huge));
}

TEST_CASE("sums do not depend on the number of threads") {
  const at::Tensor x = random({5, 70, 19, 23}, at::kFloat);
  const int threads = at::get_num_threads();
  const Moments many = cpu_kernels().moments(x);
  at::set_num_threads(1);
  const Moments one = cpu_kernels().moments(x);
  at::set_num_threads(threads);
  CHECK(many.mean.equal(one.mean));
  CHECK(many.variance.equal(one.variance));
}

namespace {

BatchNorm2d norm_of(int64_t channels) {
  Builder builder(at::kCPU, 1);
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

Ran run(const BlockOperations& operations, Operation operation, const BatchNorm2d& norm, const at::Tensor& input, const at::Tensor& residual, bool training) {
  const at::Tensor x = input.detach().clone().requires_grad_(training), added = residual.detach().clone().requires_grad_(training);
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
    case Operation::norm: ran.output = operations.batch_norm(x, norm, context); break;
    case Operation::norm_relu: ran.output = operations.batch_norm_relu(x, norm, context); break;
    case Operation::norm_add_relu: ran.output = operations.batch_norm_add_relu(x, norm, added, context); break;
    case Operation::stem_pool: ran.output = operations.stem_pool(x, norm, context); break;
  }
  ran.running_mean = norm.running_mean.clone();
  ran.running_var = norm.running_var.clone();
  ran.batches = norm.num_batches_tracked.item<int64_t>();
  if (!training) return ran;
  at::manual_seed(9);
  const at::Tensor seed = at::randn(ran.output.sizes()).to(ran.output.scalar_type());
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

}  // namespace

TEST_CASE("block operations and their gradients are those of libtorch") {
  at::manual_seed(5);
  const auto fused = make_fused_block_operations(cpu_kernels()), reference = make_fused_block_operations(reference_kernels());
  const PlainBlockOperations plain;
  for (const auto operation : {Operation::norm, Operation::norm_relu, Operation::norm_add_relu, Operation::stem_pool})
    for (const bool training : {true, false})
      for (const bool channels_last : {true, false}) {
        INFO(static_cast<int>(operation) << " " << training << " " << channels_last);
        at::Tensor input = at::randn({4, 19, 9, 11}) * 3 + 1, residual = at::randn({4, 19, 9, 11});
        if (channels_last) input = input.contiguous(at::MemoryFormat::ChannelsLast);
        const BatchNorm2d norm = norm_of(19);
        const Ran wanted = run(plain, operation, norm, input, residual, training);
        for (const auto& operations : {fused, reference}) {
          const Ran got = run(*operations, operation, norm, input, residual, training);
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
}

TEST_CASE("in 16 bits the output is within one rounding of float32's, gradients within a few") {
  at::manual_seed(6);
  const auto fused = make_fused_block_operations(cpu_kernels());
  const PlainBlockOperations plain;
  for (const auto type : {at::kBFloat16, at::kHalf})
    for (const auto operation : {Operation::norm_relu, Operation::norm_add_relu, Operation::stem_pool}) {
      const at::Tensor input = random({4, 32, 12, 12}, type), residual = random({4, 32, 12, 12}, type);
      const BatchNorm2d norm = norm_of(32);
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

TEST_CASE("gradients of the formulas are those of finite differences, in float64") {
  // The formulas of the reference, without its roundings: y = weight · (x − mean) / √(variance + ε) + bias, through ReLU.
  at::manual_seed(7);
  const at::Tensor x = at::randn({2, 3, 3, 3}, at::kDouble), weight = at::randn({3}, at::kDouble), bias = at::randn({3}, at::kDouble), seed = at::randn({2, 3, 3, 3}, at::kDouble);
  const auto view = [](const at::Tensor& by_channel) { return by_channel.view({1, 3, 1, 1}); };
  const auto loss = [&](const at::Tensor& at_x) {
    const auto [variance, mean] = at::var_mean(at_x, {0, 2, 3}, 0);
    return (((at_x - view(mean)) * view(weight / (variance + 1e-5).sqrt()) + view(bias)).relu() * seed).sum().item<double>();
  };
  const auto [variance, mean] = at::var_mean(x, {0, 2, 3}, 0);
  const at::Tensor inverse = (variance + 1e-5).rsqrt(), scale = weight * inverse, shift = bias - mean * scale;
  const at::Tensor g = at::where(x * view(scale) + view(shift) > 0, seed, at::zeros({}, at::kDouble));
  const at::Tensor sum = g.sum({0, 2, 3}), product = (g * (x - view(mean))).sum({0, 2, 3});
  const at::Tensor of_x = -scale * inverse.square() * product / 18, rest = -scale * sum / 18 - of_x * mean;
  const at::Tensor gradient = view(scale) * g + view(of_x) * x + view(rest);
  for (const int64_t at : {0, 5, 13, 26, 40, 53}) {
    at::Tensor above = x.clone(), below = x.clone();
    above.view(-1)[at] += 1e-6;
    below.view(-1)[at] -= 1e-6;
    CHECK(gradient.view(-1)[at].item<double>() == Approx((loss(above) - loss(below)) / 2e-6).epsilon(1e-5).margin(1e-7));
  }
}
