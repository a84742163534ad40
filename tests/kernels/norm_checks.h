// Checks that every implementation of NormKernels must pass, on any device: results match the reference in every type
// and shape.
#pragma once

#include "device/tensor.h"
#include "kernels/norm/norm.h"
#include "support/catch.h"

namespace trainopt::test {

using namespace trainopt::kernels;

inline const std::vector<std::vector<int64_t>> kNormShapes = {
    {1, 1, 1, 1}, {2, 3, 5, 7},    {1, 64, 8, 8}, {3, 65, 4, 6}, {2, 130, 7, 5}, {9, 256, 1, 1},
    {1, 7, 1, 9}, {4, 16, 33, 31}, {1, 13, 1, 1}, {2, 64, 7, 7}, {5, 24, 13, 1}, {1, 8, 2, 2}};
inline const std::vector<at::ScalarType> kNormTypes = {at::kFloat, at::kBFloat16, at::kHalf};

/// Relative error of one rounding to the type.
inline double epsilon(at::ScalarType type) { return type == at::kFloat ? 1.2e-7 : type == at::kBFloat16 ? 8e-3 : 1e-3; }

inline at::Tensor random(const std::vector<int64_t>& shape, at::ScalarType type, at::Device device = at::kCPU,
                         double scale = 1, double offset = 0) {
  return (at::randn(shape) * scale + offset).to(device, type).contiguous(at::MemoryFormat::ChannelsLast);
}

/// Random per-channel inputs of a pass.
struct ByChannel : Statistics {
  explicit ByChannel(int64_t channels, at::Device device = at::kCPU) {
    for (at::Tensor* values : {&mean, &inverse, &scale, &shift}) *values = at::randn({channels}).to(device);
  }
};

inline void check_near(const at::Tensor& got, const at::Tensor& wanted, double tolerance) {
  REQUIRE(got.sizes() == wanted.sizes());
  REQUIRE(got.scalar_type() == wanted.scalar_type());
  const at::Tensor a = got.to(at::kDouble), b = wanted.to(at::kDouble);
  CHECK(at::allclose(a, b, tolerance, tolerance * std::max(1.0, b.abs().nan_to_num(0, 0, 0).max().item<double>()),
                     /*equal_nan=*/true));
}
inline void check_near(const Statistics& got, const Statistics& wanted, double tolerance) {
  check_near(got.mean, wanted.mean, tolerance);
  check_near(got.inverse, wanted.inverse, tolerance);
  check_near(got.scale, wanted.scale, tolerance);
  check_near(got.shift, wanted.shift, tolerance);
}
inline void check_near(const Coefficients& got, const Coefficients& wanted, double tolerance) {
  check_near(got.of_bias, wanted.of_bias, tolerance);
  check_near(got.of_weight, wanted.of_weight, tolerance);
  check_near(got.of_x, wanted.of_x, tolerance);
  check_near(got.rest, wanted.rest, tolerance);
}

/// Parameters and running statistics of a batch-norm.
struct NormState {
  explicit NormState(int64_t channels, at::Device device = at::kCPU)
      : weight(at::randn({channels}).to(device)),
        bias(at::randn({channels}).to(device)),
        mean(at::randn({channels}).to(device)),
        var(at::rand({channels}).to(device)),
        batches(at::full({}, 41, at::TensorOptions(device).dtype(at::kLong))) {}
  NormState copy() const {
    NormState copied = *this;
    copied.mean = mean.clone(), copied.var = var.clone(), copied.batches = batches.clone();
    return copied;
  }
  NormParameters parameters() const { return {weight, bias, mean, var, batches, 0.1, 1e-5}; }
  at::Tensor weight, bias, mean, var, batches;
};

/// Statistics of `x` and the running statistics after it; `tolerance` is relative to the largest value.
inline void check_statistics(const NormKernels& fast, const at::Tensor& x, const NormState& state, double tolerance) {
  const NormState ours = state.copy(), plain = state.copy();
  check_near(fast.statistics(x, ours.parameters()), reference_norm_kernels().statistics(x, plain.parameters()),
             tolerance);
  CHECK(ours.batches.equal(plain.batches));
  if (x.numel() == x.size(1)) return;  // one value has no unbiased variance
  check_near(ours.mean, plain.mean, tolerance);
  check_near(ours.var, plain.var, tolerance);
}

/// Compares every pass over `x` with the reference.
inline void check_passes(const NormKernels& fast, const at::Tensor& x) {
  const NormKernels& plain = reference_norm_kernels();
  const auto shape = x.sizes().vec();
  const auto type = x.scalar_type();
  const at::Tensor gradient = random(shape, type, x.device()), residual = random(shape, type, x.device());
  const ByChannel by(shape[1], x.device());
  const double once = 2 * epsilon(type);
  check_statistics(fast, x, NormState(shape[1], x.device()), 3e-6);
  for (const bool relu : {false, true}) {
    check_near(fast.apply(x, by.scale, by.shift, {}, relu), plain.apply(x, by.scale, by.shift, {}, relu), once);
    check_near(fast.apply(x, by.scale, by.shift, residual, relu), plain.apply(x, by.scale, by.shift, residual, relu),
               once);
  }
  check_near(fast.coefficients(gradient, x, by), plain.coefficients(gradient, x, by), 1e-5);
  const Coefficients through_relu = plain.coefficients_through_relu(gradient, x, by);
  check_near(fast.coefficients_through_relu(gradient, x, by), through_relu, 1e-5);
  at::Tensor g, plain_g;
  check_near(fast.coefficients_through_output(gradient, residual, x, by, g),
             plain.coefficients_through_output(gradient, residual, x, by, plain_g), 1e-5);
  CHECK(g.equal(plain_g));
  check_near(fast.input_gradient(gradient, x, by, through_relu), plain.input_gradient(gradient, x, by, through_relu),
             once);
  check_near(fast.input_gradient_through_relu(gradient, x, by, through_relu),
             plain.input_gradient_through_relu(gradient, x, by, through_relu), once);
}

inline void check_every_pass(const NormKernels& fast, at::Device device) {
  at::manual_seed(3);
  for (const auto type : kNormTypes)
    for (const auto& shape : kNormShapes) {
      INFO(type << " " << at::IntArrayRef(shape));
      check_passes(fast, random(shape, type, device, 2, 1));
    }
}

/// Large values that differ little keep their variance.
inline void check_large_values(const NormKernels& fast, at::Device device) {
  at::manual_seed(4);
  for (const double size : {1e3, 1e4}) {
    const at::Tensor x = random({8, 5, 16, 16}, at::kFloat, device, 1e-5 * size, size);
    const NormState state(5, device), plain = state.copy();
    NormParameters ours = state.parameters(), theirs = plain.parameters();
    ours.epsilon = theirs.epsilon = 1e-12;
    check_near(fast.statistics(x, ours).inverse * (1e-5 * size),
               reference_norm_kernels().statistics(x, theirs).inverse * (1e-5 * size), 1e-4);
  }
}

/// NaN and infinity are propagated.
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
      CHECK(fast.statistics(x, NormState(channels, device).parameters()).mean.isfinite().cpu().equal(finite));
      check_near(fast.apply(x, by.scale, by.shift, {}, true),
                 reference_norm_kernels().apply(x, by.scale, by.shift, {}, true), 2 * epsilon(type));
    }
  const at::Tensor huge =
      at::full({1, 17, 2, 2}, 3.39e38).to(device, at::kBFloat16).contiguous(at::MemoryFormat::ChannelsLast);
  CHECK(fast.apply(huge, at::ones({17}, device), at::zeros({17}, device), {}, false).equal(huge));
}

}  // namespace trainopt::test
