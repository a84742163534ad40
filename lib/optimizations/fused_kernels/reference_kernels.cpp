#include "optimizations/fused_kernels/norm_kernels.h"

#include <ATen/ATen.h>

namespace trainopt::fused_kernels {
namespace {

at::Tensor wide(const at::Tensor& tensor) { return tensor.to(at::kFloat); }
at::Tensor by_channel(const at::Tensor& values) { return values.view({1, -1, 1, 1}); }
at::Tensor over_rows(const at::Tensor& tensor) { return tensor.to(at::kDouble).sum({0, 2, 3}).to(at::kFloat); }

class ReferenceKernels : public NormKernels {
 public:
  Moments moments(const at::Tensor& x) const override {
    const auto [variance, mean] = at::var_mean(x.to(at::kDouble), {0, 2, 3}, /*correction=*/0);
    return {mean.to(at::kFloat), variance.to(at::kFloat)};
  }
  at::Tensor apply(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& residual,
                   bool relu) const override {
    at::Tensor y = normalized(x, scale, shift);
    if (residual.defined()) y = y + wide(residual);
    return (relu ? y.relu() : y).to(x.scalar_type());
  }
  GradientSums sums(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean) const override {
    return {over_rows(gradient), over_rows(wide(gradient) * (wide(x) - by_channel(mean)))};
  }
  GradientSums sums_through_relu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean,
                                 const at::Tensor& scale, const at::Tensor& shift) const override {
    return sums(through(gradient, normalized(x, scale, shift)), x, mean);
  }
  GradientSums sums_through_output(const at::Tensor& gradient, const at::Tensor& y, const at::Tensor& x,
                                   const at::Tensor& mean, at::Tensor& g) const override {
    g = through(gradient, y);
    return sums(g, x, mean);
  }
  at::Tensor input_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& of_gradient,
                            const at::Tensor& of_x, const at::Tensor& rest) const override {
    return (by_channel(of_gradient) * wide(g) + by_channel(of_x) * wide(x) + by_channel(rest)).to(x.scalar_type());
  }
  at::Tensor input_gradient_through_relu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& of_gradient,
                                         const at::Tensor& of_x, const at::Tensor& rest, const at::Tensor& scale,
                                         const at::Tensor& shift) const override {
    return input_gradient(through(gradient, normalized(x, scale, shift)), x, of_gradient, of_x, rest);
  }

  Pooled pool(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift) const override {
    const auto [values, indices] = at::max_pool2d_with_indices(normalized(x, scale, shift).relu(), 3, 2, 1);
    // libtorch's index is a place in the image; ours is one in the window.
    const int64_t width = x.size(3);
    const auto counted = [&](int64_t size, int64_t dimension) {
      std::vector<int64_t> shape{1, 1, 1, 1};
      shape[static_cast<size_t>(dimension)] = size;
      return at::arange(size, indices.options()).mul(2).sub(1).view(shape);
    };
    const at::Tensor rows = at::floor_divide(indices, width) - counted(values.size(2), 2),
                     columns = indices % width - counted(values.size(3), 3);
    const at::Tensor places = at::where(values.eq(0), 9, rows * 3 + columns);
    const at::Tensor chosen =
        x.contiguous().flatten(2).gather(2, indices.contiguous().flatten(2)).view(indices.sizes());
    const auto nhwc = [](const at::Tensor& tensor) { return tensor.contiguous(at::MemoryFormat::ChannelsLast); };
    return {nhwc(values.to(x.scalar_type())), nhwc(places.to(at::kByte)), nhwc(chosen)};
  }
  GradientSums sums_through_pool(const at::Tensor& gradient, const Pooled& pooled,
                                 const at::Tensor& mean) const override {
    return sums(at::where(pooled.places == 9, at::zeros({}, gradient.options()), gradient), pooled.chosen, mean);
  }
  at::Tensor input_gradient_through_pool(const at::Tensor& gradient, const at::Tensor& places, const at::Tensor& x,
                                         const at::Tensor& of_gradient, const at::Tensor& of_x,
                                         const at::Tensor& rest) const override {
    return input_gradient(unpooled(gradient, places, x), x, of_gradient, of_x, rest);
  }

 private:
  static at::Tensor normalized(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift) {
    return wide(x) * by_channel(scale) + by_channel(shift);
  }
  static at::Tensor through(const at::Tensor& gradient, const at::Tensor& y) {
    return at::where(y > 0, gradient, at::zeros({}, gradient.options()));
  }
  /// The gradient where the values came from, as large as x: window by window into an image with a border of one.
  static at::Tensor unpooled(const at::Tensor& gradient, const at::Tensor& places, const at::Tensor& x) {
    at::Tensor bordered =
        at::zeros({x.size(0), x.size(1), x.size(2) + 3, x.size(3) + 3}, x.options().dtype(at::kFloat));
    for (int64_t place = 0; place < 9; ++place) {
      const int64_t top = place / 3, left = place % 3;
      at::Tensor hit =
          bordered.slice(2, top, top + 2 * gradient.size(2) - 1, 2).slice(3, left, left + 2 * gradient.size(3) - 1, 2);
      hit.add_(wide(gradient) * places.eq(place));
    }
    return bordered.slice(2, 1, 1 + x.size(2)).slice(3, 1, 1 + x.size(3)).contiguous(at::MemoryFormat::ChannelsLast);
  }
};

}  // namespace

Line line_of(const BatchNorm2d& norm, const at::Tensor& mean, const at::Tensor& variance) {
  const at::Tensor inverse = (variance + BatchNorm2d::kEpsilon).rsqrt(), scale = norm.weight * inverse;
  return {inverse, scale, norm.bias - mean * scale};
}

Line NormKernels::line(const Moments& moments, int64_t count, const BatchNorm2d& norm) const {
  const auto n = static_cast<double>(count);
  at::Tensor batches = norm.num_batches_tracked, mean = norm.running_mean, variance = norm.running_var;
  batches.add_(1);
  mean.lerp_(moments.mean, BatchNorm2d::kMomentum);
  variance.lerp_(moments.variance * (n / (n - 1)), BatchNorm2d::kMomentum);
  return line_of(norm, moments.mean, moments.variance);
}

Coefficients NormKernels::coefficients(const GradientSums& sums, const Line& line, const at::Tensor& mean,
                                       int64_t count) const {
  const double share = -1.0 / static_cast<double>(count);
  const at::Tensor of_weight = sums.product * line.inverse, of_x = line.scale * line.inverse * of_weight * share;
  return {of_weight, of_x, line.scale * sums.gradient * share - of_x * mean};
}

const NormKernels& reference_kernels() {
  static const ReferenceKernels kernels;
  return kernels;
}

}  // namespace trainopt::fused_kernels
