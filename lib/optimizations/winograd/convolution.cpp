#include "optimizations/winograd/convolution.h"

#include "device/autocast.h"
#include "device/tensor.h"
#include "kernels/winograd/autograd.h"
#include "kernels/winograd/tiles.h"

#include <algorithm>

namespace trainopt::winograd {
namespace {

namespace kernel = kernels::winograd;

/// Below these, the transforms cost more than the multiplications they save.
constexpr int64_t kMinChannels = 32, kMinTiles = 32;
constexpr double kMinSaving = 2;

class Convolutions : public PlainConvolutionOperations {
 public:
  explicit Convolutions(kernel::Products products) : products_(products) {}

  bool supports(const Conv2d::Shape& shape, const at::Tensor& input) const override {
    if (shape.kernel != kernel::kKernel || shape.stride != 1 || shape.padding != 1) return false;
    if (std::min(shape.in, shape.out) < kMinChannels || shape.in % kernels::kPanel != 0 ||
        shape.out % kernels::kPanel != 0)
      return false;
    const kernel::Grid grid{.images = input.size(0), .height = input.size(2), .width = input.size(3)};
    return grid.tiles() >= kMinTiles && kernel::saving(grid.height, grid.width) >= kMinSaving;
  }

  at::Tensor forward(const Conv2d::Shape& shape, const at::Tensor& input, const at::Tensor& weight) const override {
    if (!supports(shape, input)) return PlainConvolutionOperations::forward(shape, input, weight);
    const auto type = autocast_type(input.device().type());
    const auto as_autocast = [&](const at::Tensor& tensor) { return type ? tensor.to(*type) : tensor; };
    return kernel::differentiable_convolution(as_autocast(input), as_autocast(weight), products_);
  }

 private:
  kernel::Products products_;
};

}  // namespace

std::unique_ptr<ConvolutionOperations> make_convolutions(const Config& config) {
  return std::make_unique<Convolutions>(config.products == ProductType::bfloat16 ? kernel::Products::bfloat16
                                                                                 : kernel::Products::full);
}

}  // namespace trainopt::winograd
