// Checks that every implementation of HeadKernels must pass, on any device: results match the reference in every type
// and size, and losses and gradients match libtorch.
#pragma once

#include "kernels/head/head.h"
#include "kernels/norm_checks.h"
#include "support/autograd.h"

#include <limits>

namespace trainopt::test {

inline const std::vector<std::vector<int64_t>> kPooledShapes = {{1, 1, 1, 1},    {2, 3, 7, 7},    {5, 512, 7, 7},
                                                                {3, 65, 1, 1},   {1, 8, 4, 9},    {9, 13, 5, 20},
                                                                {2, 16, 33, 40}, {1, 2056, 2, 1}, {2, 100, 1, 17}};
inline const std::vector<int64_t> kClassCounts = {1, 2, 3, 10, 24, 1000, 1001, 5000};

inline at::Tensor random_logits(int64_t rows, int64_t classes, at::ScalarType type, at::Device device,
                                double scale = 3) {
  return (at::randn({rows, classes}) * scale).to(device, type);
}
inline at::Tensor random_targets(int64_t rows, int64_t classes, at::Device device) {
  return at::randint(classes, {rows}, at::kLong).to(device);
}

/// Each value is within a relative error of `relative` or an absolute error of `absolute`.
inline void check_each_near(const at::Tensor& got, const at::Tensor& wanted, double relative, double absolute) {
  REQUIRE(got.sizes() == wanted.sizes());
  CHECK(at::allclose(got.to(at::kDouble), wanted.to(at::kDouble), relative, absolute, /*equal_nan=*/true));
}

/// Tolerance of two roundings to the type, for float32 values that were computed in two ways and differ in their last
/// digits.
inline double two_roundings(at::ScalarType type) { return type == at::kFloat ? 3e-6 : epsilon(type); }

inline void check_means(const HeadKernels& kernels, at::Device device) {
  at::manual_seed(21);
  const HeadKernels& plain = reference_head_kernels();
  for (const auto type : kNormTypes)
    for (const auto& shape : kPooledShapes) {
      INFO(type << " " << at::IntArrayRef(shape));
      const at::Tensor x = random(shape, type, device, 2, 1), mean = kernels.mean(x);
      CHECK(mean.scalar_type() == type);
      check_each_near(mean, plain.mean(x), two_roundings(type), 1e-6);
      const at::Tensor gradient = at::randn({shape[0], shape[1]}).to(device, type);
      const at::Tensor of_x = kernels.mean_gradient(gradient, shape[2], shape[3]);
      CHECK(of_x.scalar_type() == type);
      CHECK(of_x.is_contiguous(at::MemoryFormat::ChannelsLast));
      check_each_near(of_x, plain.mean_gradient(gradient, shape[2], shape[3]), two_roundings(type), 0);
    }
}

inline void check_loss(const HeadKernels& kernels, const at::Tensor& logits, const at::Tensor& target,
                       double smoothing) {
  const auto type = logits.scalar_type();
  CrossEntropy got = kernels.cross_entropy(logits, target, smoothing),
               wanted = reference_head_kernels().cross_entropy(logits, target, smoothing);
  CHECK(got.loss.scalar_type() == at::kFloat);
  CHECK(got.loss.dim() == 0);
  check_each_near(got.loss, wanted.loss, 2e-6, 1e-6);
  CHECK(got.gradient.scalar_type() == type);
  check_each_near(got.gradient, wanted.gradient, two_roundings(type),
                  4e-7 * static_cast<double>(stored_gradient_scale(type)));
  const at::Tensor upstream = at::full({}, 12.5, got.loss.options());
  wanted.gradient.copy_(got.gradient);
  kernels.finish_gradient(got.gradient, upstream);
  reference_head_kernels().finish_gradient(wanted.gradient, upstream);
  check_each_near(got.gradient, wanted.gradient, two_roundings(type),
                  type == at::kHalf ? 6e-8 : 0);  // one step of float16's subnormal numbers
}

inline void check_losses(const HeadKernels& kernels, at::Device device) {
  at::manual_seed(22);
  for (const auto type : kNormTypes)
    for (const int64_t classes : kClassCounts)
      for (const int64_t rows : {1, 7})
        for (const double smoothing : {0.0, 0.1, 1.0}) {
          INFO(type << " " << rows << " × " << classes << ", " << smoothing);
          check_loss(kernels, random_logits(rows, classes, type, device), random_targets(rows, classes, device),
                     smoothing);
        }
  check_loss(kernels, random_logits(2, 100003, at::kFloat, device), random_targets(2, 100003, device), 0.1);
  check_loss(kernels, random_logits(300, 10, at::kBFloat16, device), random_targets(300, 10, device), 0.1);
  for (const auto type : kNormTypes) {  // unaligned
    const at::Tensor memory = random_logits(1, 5 * 64 + 1, type, device).view(-1);
    check_loss(kernels, memory.slice(0, 1).view({5, 64}), random_targets(5, 64, device), 0.1);
  }
}

/// Compares the loss, and the gradient of backward under a loss scale, with float64.
inline void check_loss_gradients(const HeadKernels& kernels, at::Device device) {
  at::manual_seed(23);
  for (const auto type : kNormTypes)
    for (const int64_t classes : {2, 10, 1000, 1001})
      for (const double smoothing : {0.0, 0.1}) {
        INFO(type << " " << classes << " " << smoothing);
        constexpr int64_t kRows = 12;
        constexpr double kUpstream = 65536;
        const at::Tensor logits = random_logits(kRows, classes, type, device).requires_grad_(),
                         target = random_targets(kRows, classes, device);
        const at::Tensor wide = logits.detach().to(at::kDouble).requires_grad_();
        const at::Tensor loss = cross_entropy(logits, target, smoothing, kernels),
                         wanted = at::cross_entropy_loss(wide, target, {}, at::Reduction::Mean, -100, smoothing);
        CHECK(loss.item<double>() == Approx(wanted.item<double>()).epsilon(1e-6));
        const auto gradient = torch::autograd::grad({loss * kUpstream}, {logits})[0],
                   of_wide = torch::autograd::grad({wanted * kUpstream}, {wide})[0];
        CHECK(gradient.scalar_type() == type);
        // Where p is near 1, p − 1 loses the last digits of float32.
        check_each_near(gradient, of_wide, two_roundings(type), 4e-7 * kUpstream / kRows);
        if (type == at::kHalf && classes > 100 && smoothing == 0) {
          // Small gradients are as accurate, or within one step of float16's subnormal numbers: that is the purpose of
          // a loss scale.
          const at::Tensor small = gradient.masked_select(of_wide.abs() < 1e-5 * kUpstream / kRows),
                           of_small = of_wide.masked_select(of_wide.abs() < 1e-5 * kUpstream / kRows);
          REQUIRE(small.numel() > 0);
          check_each_near(small, of_small, two_roundings(type), 7e-8);
        }
      }
}

/// Values that are too large, infinite or NaN give the same result as libtorch: finite, infinite or NaN.
inline void check_extreme_logits(const HeadKernels& kernels, at::Device device) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> rows = {
      {1e30f, 0, -1e30f}, {65504, -65504, 0},          {3e38f, 0, 1},
      {-kInfinity, 0, 1}, {0, -kInfinity, -kInfinity}, {-kInfinity, -kInfinity, -kInfinity},
      {kInfinity, 0, 0},  {-kInfinity, kInfinity, 0},  {kNan, 0, 0},
      {0, 0, kNan},       {-1e30f, -1e30f, -1e30f},    {88, -88, 0}};
  for (const auto type : kNormTypes)
    for (const int64_t classes : {3, 8, 37, 1200})
      for (const double smoothing : {0.0, 0.1})
        for (const int64_t wanted_class : {0, 1, 2})
          for (size_t which = 0; which < rows.size(); ++which) {
            INFO(type << " " << classes << " " << smoothing << " " << wanted_class << " row " << which);
            const at::Tensor pattern = at::tensor(rows[which]);
            const at::Tensor logits =
                pattern.repeat({(classes + 2) / 3}).slice(0, 0, classes).unsqueeze(0).contiguous().to(device, type);
            const at::Tensor target = at::full({1}, wanted_class, at::TensorOptions(device).dtype(at::kLong));
            const at::Tensor ours = logits.clone().requires_grad_(), theirs = logits.to(at::kFloat).requires_grad_();
            const at::Tensor loss = cross_entropy(ours, target, smoothing, kernels),
                             plain = at::cross_entropy_loss(theirs, target, {}, at::Reduction::Mean, -100, smoothing);
            check_each_near(loss, plain, 2e-6, 1e-6);
            const auto of_ours = torch::autograd::grad({loss}, {ours})[0],
                       of_theirs = torch::autograd::grad({plain}, {theirs})[0];
            check_each_near(of_ours, of_theirs, two_roundings(type), 4e-7);
          }
}

}  // namespace trainopt::test
