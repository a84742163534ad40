#include "kernels/pool/pool.h"

#include "device/tensor.h"
#include "kernels/tensors.h"

namespace trainopt::kernels {
namespace {

class ReferencePoolKernels : public PoolKernels {
 public:
  Pooled pool(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift) const override {
    const auto [values, indices] =
        at::max_pool2d_with_indices(reference_norm_kernels().apply(x.to(at::kFloat), scale, shift, {}, true), 3, 2, 1);
    // libtorch's index is a position in the image, ours a position in the window.
    const int64_t width = x.size(3);
    const auto counted = [&](int64_t size, int64_t dimension) {
      std::vector<int64_t> shape{1, 1, 1, 1};
      shape[static_cast<size_t>(dimension)] = size;
      return at::arange(size, indices.options()).mul(2).sub(1).view(shape);
    };
    const at::Tensor rows = at::floor_divide(indices, width) - counted(values.size(2), 2),
                     columns = indices % width - counted(values.size(3), 3);
    const at::Tensor positions = at::where(values.eq(0), 9, rows * 3 + columns);
    const at::Tensor chosen =
        x.contiguous().flatten(2).gather(2, indices.contiguous().flatten(2)).view(indices.sizes());
    return {nhwc(values.to(x.scalar_type())), nhwc(positions.to(at::kByte)), nhwc(chosen)};
  }
  Coefficients coefficients(const at::Tensor& gradient, const Pooled& pooled, const Statistics& by,
                            int64_t count) const override {
    const at::Tensor g = at::where(pooled.positions == 9, at::zeros({}, gradient.options()), gradient).to(at::kDouble),
                     distances = pooled.chosen.to(at::kFloat) - by.mean.view({1, -1, 1, 1});
    const auto over_rows = [](const at::Tensor& values) { return values.sum({0, 2, 3}).to(at::kFloat); };
    return coefficients_of(over_rows(g), over_rows(g * distances), by, count);
  }
  at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& positions, const at::Tensor& x,
                            const Statistics& by, const Coefficients& coefficients) const override {
    return reference_norm_kernels().input_gradient(unpooled(gradient, positions, x), x, by, coefficients);
  }

 private:
  /// The gradient at the positions that the values came from, in the shape of x: added window by window to an image
  /// with a border of one.
  static at::Tensor unpooled(const at::Tensor& gradient, const at::Tensor& positions, const at::Tensor& x) {
    at::Tensor bordered =
        at::zeros({x.size(0), x.size(1), x.size(2) + 3, x.size(3) + 3}, x.options().dtype(at::kFloat));
    for (int64_t position = 0; position < 9; ++position) {
      const int64_t top = position / 3, left = position % 3;
      at::Tensor hit =
          bordered.slice(2, top, top + 2 * gradient.size(2) - 1, 2).slice(3, left, left + 2 * gradient.size(3) - 1, 2);
      hit.add_(gradient.to(at::kFloat) * positions.eq(position));
    }
    return bordered.slice(2, 1, 1 + x.size(2)).slice(3, 1, 1 + x.size(3)).contiguous(at::MemoryFormat::ChannelsLast);
  }
};

}  // namespace

const PoolKernels& reference_pool_kernels() {
  static const ReferencePoolKernels kernels;
  return kernels;
}

}  // namespace trainopt::kernels
