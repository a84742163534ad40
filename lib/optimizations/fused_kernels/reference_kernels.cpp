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
  at::Tensor apply(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& residual, bool relu) const override {
    at::Tensor y = normalized(x, scale, shift);
    if (residual.defined()) y = y + wide(residual);
    return (relu ? y.relu() : y).to(x.scalar_type());
  }
  GradientSums sums(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean) const override {
    return {over_rows(gradient), over_rows(wide(gradient) * (wide(x) - by_channel(mean)))};
  }
  GradientSums sums_through_relu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean, const at::Tensor& scale, const at::Tensor& shift) const override {
    return sums(through(gradient, normalized(x, scale, shift)), x, mean);
  }
  GradientSums sums_through_output(const at::Tensor& gradient, const at::Tensor& y, const at::Tensor& x, const at::Tensor& mean, at::Tensor& g) const override {
    g = through(gradient, y);
    return sums(g, x, mean);
  }
  at::Tensor input_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& of_gradient, const at::Tensor& of_x, const at::Tensor& rest) const override {
    return (by_channel(of_gradient) * wide(g) + by_channel(of_x) * wide(x) + by_channel(rest)).to(x.scalar_type());
  }
  at::Tensor input_gradient_through_relu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& of_gradient, const at::Tensor& of_x, const at::Tensor& rest,
                                         const at::Tensor& scale, const at::Tensor& shift) const override {
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
    const at::Tensor rows = at::floor_divide(indices, width) - counted(values.size(2), 2), columns = indices % width - counted(values.size(3), 3);
    const at::Tensor places = at::where(values.eq(0), 9, rows * 3 + columns);
    return {values.to(x.scalar_type()).contiguous(at::MemoryFormat::ChannelsLast), places.to(at::kByte).contiguous(at::MemoryFormat::ChannelsLast)};
  }
  GradientSums sums_through_pool(const at::Tensor& gradient, const at::Tensor& places, const at::Tensor& x, const at::Tensor& mean) const override {
    return sums(unpooled(gradient, places, x), x, mean);
  }
  at::Tensor input_gradient_through_pool(const at::Tensor& gradient, const at::Tensor& places, const at::Tensor& x, const at::Tensor& of_gradient, const at::Tensor& of_x,
                                         const at::Tensor& rest) const override {
    return input_gradient(unpooled(gradient, places, x), x, of_gradient, of_x, rest);
  }

 private:
  static at::Tensor normalized(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift) { return wide(x) * by_channel(scale) + by_channel(shift); }
  static at::Tensor through(const at::Tensor& gradient, const at::Tensor& y) { return at::where(y > 0, gradient, at::zeros({}, gradient.options())); }
  /// The gradient where the values came from, as large as x: window by window into an image with a border of one.
  static at::Tensor unpooled(const at::Tensor& gradient, const at::Tensor& places, const at::Tensor& x) {
    at::Tensor bordered = at::zeros({x.size(0), x.size(1), x.size(2) + 3, x.size(3) + 3}, x.options().dtype(at::kFloat));
    for (int64_t place = 0; place < 9; ++place) {
      const int64_t top = place / 3, left = place % 3;
      at::Tensor hit = bordered.slice(2, top, top + 2 * gradient.size(2) - 1, 2).slice(3, left, left + 2 * gradient.size(3) - 1, 2);
      hit.add_(wide(gradient) * places.eq(place));
    }
    return bordered.slice(2, 1, 1 + x.size(2)).slice(3, 1, 1 + x.size(3)).contiguous(at::MemoryFormat::ChannelsLast);
  }
};

}  // namespace

const NormKernels& reference_kernels() {
  static const ReferenceKernels kernels;
  return kernels;
}

}  // namespace trainopt::fused_kernels
