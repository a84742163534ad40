#include "debugging/gradcheck/values.h"

#include "base/philox.h"
#include "device/device.h"
#include "device/tensor.h"

#include <cmath>

namespace trainopt::gradcheck {
namespace {

/// Outputs closer than this are close to a kink. Normalised values are of order 1. bfloat16 rounds values up to 8 by at
/// most 0.016, and a central difference moves them by a thousandth of that.
constexpr double kKinkMargin = 0.05;

/// Random numbers in [0, 1).
at::Tensor uniform(at::IntArrayRef sizes, uint64_t key) {
  return at::rand(sizes, make_generator(at::kCPU, key), at::TensorOptions(at::kDouble));
}
at::Tensor signs(at::IntArrayRef sizes, uint64_t key) {
  return uniform(sizes, key).lt(0.5).to(at::kDouble).mul_(2).sub_(1);
}

/// Between 0.5 and 1.5, of either sign.
at::Tensor away_from_zero(at::IntArrayRef sizes, uint64_t key) {
  return uniform(sizes, mix_key(key, 0)).add_(0.5).mul_(signs(sizes, mix_key(key, 1)));
}

/// Means in [-1, 1), standard deviations in [0.5, 2).
at::Tensor by_channel(at::IntArrayRef sizes, uint64_t key) {
  std::vector<int64_t> channel(sizes.size(), 1);
  channel[1] = sizes[1];
  const at::Tensor mean = uniform(channel, mix_key(key, 0)).mul_(2).sub_(1),
                   deviation = uniform(channel, mix_key(key, 1)).mul_(1.5).add_(0.5);
  return uniform(sizes, mix_key(key, 2)).sub_(0.5).mul_(std::sqrt(12.0)).mul_(deviation).add_(mean);
}

at::Tensor rounded(const at::Tensor& values, at::ScalarType type) { return values.to(type).to(at::kDouble); }

}  // namespace

Tensors input_values(const GradientCase& gradient_case, int64_t samples, at::ScalarType type, uint64_t key) {
  Tensors values;
  for (const CaseInput& input : gradient_case.inputs) {
    auto sizes = input.sizes;
    if (input.per_sample) sizes[0] = samples;
    const uint64_t own = mix_key(key, input.name);
    values.push_back(rounded(input.per_sample ? by_channel(sizes, own) : away_from_zero(sizes, own), type));
  }
  return values;
}

at::Tensor output_gradient(const GradientCase& gradient_case, const at::Tensor& output, const Tensors& inputs,
                           at::ScalarType type, uint64_t key) {
  const at::NoGradGuard no_grad;
  at::Tensor gradient = rounded(away_from_zero(output.sizes(), mix_key(key, "output")), type);
  if (gradient_case.distance_to_kink) gradient.mul_(gradient_case.distance_to_kink(inputs) > kKinkMargin);
  return gradient;
}

Tensors direction(const Tensors& inputs, uint64_t key) {
  Tensors all;
  for (const auto& input : inputs) all.push_back(signs(input.sizes(), mix_key(key, all.size())));
  return all;
}

}  // namespace trainopt::gradcheck
