#include "optimizations/winograd/convolution.h"

#include "optimizations/winograd/passes.h"
#include "optimizations/winograd/tiles.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace trainopt::winograd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Below, the transforms cost more than the multiplications that they spare.
constexpr int64_t kLeastChannels = 32, kLeastTiles = 32;
constexpr double kLeastSaving = 2;

struct Convolution : torch::autograd::Function<Convolution> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight) {
    context->save_for_backward({input, weight});
    return convolution(input, weight);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto kept = context->get_saved_variables();
    const at::Tensor &input = kept[0], &weight = kept[1];
    RECORD_FUNCTION(kConvolutionGradientLabel, std::vector<c10::IValue>({input}));
    return {context->needs_input_grad(0) ? input_gradient(gradients[0], weight) : at::Tensor(),
            context->needs_input_grad(1) ? weight_gradient(gradients[0], input, weight.scalar_type()) : at::Tensor()};
  }
};

class Convolutions : public ConvolutionKernel {
 public:
  bool takes(const Conv2d::Shape& shape, const at::Tensor& input) const override {
    if (shape.kernel != kKernel || shape.stride != 1 || shape.padding != 1 || !input.is_cpu()) return false;
    if (std::min(shape.in, shape.out) < kLeastChannels || shape.in % kPanel != 0 || shape.out % kPanel != 0)
      return false;
    const Grid grid{.images = input.size(0), .height = input.size(2), .width = input.size(3)};
    return grid.tiles() >= kLeastTiles && saving(grid.height, grid.width) >= kLeastSaving;
  }

  at::Tensor forward(const Conv2d::Shape&, const at::Tensor& input, const at::Tensor& weight) const override {
    const bool casts = at::autocast::is_autocast_enabled(at::kCPU);
    const auto as_autocast = [&](const at::Tensor& tensor) {
      return casts ? tensor.to(at::autocast::get_autocast_dtype(at::kCPU)) : tensor;
    };
    const at::Tensor x = as_autocast(input), w = as_autocast(weight);
    RECORD_FUNCTION(kConvolutionLabel, std::vector<c10::IValue>({x}));
    return Convolution::apply(x, w);
  }
};

}  // namespace

std::shared_ptr<const ConvolutionKernel> make_convolutions() { return std::make_shared<Convolutions>(); }

}  // namespace trainopt::winograd
