#include "debugging/gradcheck/deviation.h"

#include "base/error.h"
#include "device/tensor.h"

#include <cmath>

namespace trainopt::gradcheck {
namespace {

constexpr double kSumFactor = 16;

std::string index_text(int64_t dimensions, int64_t dimension, int64_t at) {
  std::string text;
  for (int64_t i = 0; i < dimensions; ++i)
    text += (i == 0 ? "" : ", ") + (i == dimension ? std::to_string(at) : std::string(":"));
  return "[" + text + "]";
}

double unit_roundoff(at::ScalarType type) {
  switch (type) {
    case at::kFloat8_e5m2:
      return std::ldexp(1, -3);
    case at::kFloat8_e4m3fn:
      return std::ldexp(1, -4);
    case at::kBFloat16:
      return std::ldexp(1, -8);
    case at::kHalf:
      return std::ldexp(1, -11);
    default:
      TRAINOPT_CHECK(type == at::kFloat);
      return std::ldexp(1, -24);
  }
}

}  // namespace

Deviation deviation(const at::Tensor& got, const at::Tensor& wanted) {
  TRAINOPT_CHECK(got.sizes() == wanted.sizes());
  const at::NoGradGuard no_grad;
  const at::Tensor size = wanted.square(), error = (got.to(at::kCPU, at::kDouble) - wanted).square();
  const double mean_size = size.mean().item<double>(), total_error = error.sum().item<double>();
  const auto values = static_cast<double>(wanted.numel());
  Deviation worst{total_error == 0 ? 0 : std::sqrt(total_error / (mean_size * values)), "[...]"};
  for (int64_t dimension = 0; dimension < wanted.dim(); ++dimension) {
    std::vector<int64_t> others;
    for (int64_t i = 0; i < wanted.dim(); ++i)
      if (i != dimension) others.push_back(i);
    const auto of_slices = [&](const at::Tensor& tensor) { return others.empty() ? tensor : tensor.sum(others); };
    const double share = mean_size * values / static_cast<double>(wanted.size(dimension));
    const at::Tensor errors = of_slices(error);
    // NaN is the largest of all.
    const auto [largest, at] = at::where(errors == 0, 0.0, errors / of_slices(size).clamp_min(share)).max(0);
    const double relative = std::sqrt(largest.item<double>());
    if (relative > worst.relative || (std::isnan(relative) && !std::isnan(worst.relative)))
      worst = {relative, index_text(wanted.dim(), dimension, at.item<int64_t>())};
  }
  return worst;
}

double rounding_bound(at::ScalarType type, int64_t terms) {
  return 2 * unit_roundoff(type) + kSumFactor * std::sqrt(static_cast<double>(terms)) * unit_roundoff(at::kFloat);
}

}  // namespace trainopt::gradcheck
