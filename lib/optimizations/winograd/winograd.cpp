#include "optimizations/winograd/winograd.h"

#include "base/units.h"
#include "device/autocast.h"
#include "device/tensor.h"
#include "kernels/winograd/tiles.h"
#include "kernels/winograd/winograd.h"
#include "model/operations.h"
#include "train/plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>

namespace trainopt::winograd {
namespace {

bool is_own(const TracedOperation& operation) {  // grad_mode excludes evaluation
  return operation.name == kernels::winograd::kConvolutionLabel && operation.grad_mode;
}

/// "64 × 56×56 (4)": channels and image of the convolutions with Winograd, and how many there are.
std::vector<std::string> shapes_of(const StepTrace& seen) {
  constexpr size_t kMost = 6;
  std::map<std::array<int64_t, 3>, int64_t, std::greater<>> shapes;  // height, width, channels → convolutions
  for (const auto& [operation, calls] : seen.operations)
    if (const auto* input = operation.tensor(0); is_own(operation) && input)
      shapes[{input->sizes[2], input->sizes[3], input->sizes[1]}] += calls;
  std::vector<std::string> words;
  for (const auto& [shape, calls] : shapes)
    if (words.size() < kMost) words.push_back(fmt::format("{} × {}×{} ({})", shape[2], shape[0], shape[1], calls));
  if (shapes.size() > kMost) words.push_back(counted(std::ssize(shapes) - std::ssize(words), "other shape"));
  return words;
}

Receipt receipt(const StepTrace& seen, const std::string& form) {
  const int64_t own = seen.calls(is_own);
  const bool effective = own > 0;
  const std::string used =
      fmt::format("{} of {} convolutions and {} of their gradients used Winograd", own,
                  seen.calls(is_forward_convolution), seen.calls(kernels::winograd::kConvolutionGradientLabel));
  return {.observed = effective ? fmt::format("{} ({}): {}", used, form, fmt::join(shapes_of(seen), ", ")) : used,
          .effective = effective,
          .reason =
              effective ? "" : "no 3×3 convolution with stride 1 had enough channels and outputs for Winograd to pay"};
}

std::string doubt(const Plan& plan, const Config& config) {
  const bool in_16_bits = plan.tensor_format.compute_type == at::kBFloat16;
  if (in_16_bits && __builtin_cpu_supports("amx-bf16"))
    return "this CPU multiplies matrices of bfloat16 (AMX) many times as fast as float32";
  if (config.products == ProductType::bfloat16 && !kernels::winograd::has_bfloat16_products())
    return "without AVX512_BF16, products of bfloat16 are computed in float32";
  return "";
}

}  // namespace

Outcome apply(Plan& plan, const Config& config) {
  if (!plan.device.is_cpu())
    return Outcome::none("on a GPU cuDNN chooses the algorithm; cudnn_benchmark makes it time them");
  if (plan.model.layers.convolutions_3x3 == 0) return Outcome::none(plan.model.has_no("3×3 convolutions"));
  plan.operations.convolution.fill("winograd", "Winograd for 3×3 with stride 1",
                                   [config](const BuildContext&) { return make_convolutions(config); });
  plan.tensor_format.memory_format = at::MemoryFormat::ChannelsLast;  // the order that the transforms read
  const std::string form = fmt::format("F(4×4, 3×3), {} products", word_of(config.products));
  return Outcome::applied(fmt::format("Winograd ({}) for 3×3 convolutions with stride 1 and their gradients; "
                                      "activations as NHWC",
                                      form),
                          [form](const StepTrace& seen) { return receipt(seen, form); })
      .doubted([config](const Plan& complete) { return doubt(complete, config); });
}

namespace {

namespace kernel = kernels::winograd;

/// Below these, the transforms cost more than the multiplications they save.
constexpr int64_t kMinChannels = 32, kMinTiles = 32;
constexpr double kMinSaving = 2;

class Convolutions : public PlainConvolutionOperations {
 public:
  explicit Convolutions(kernel::Products products) : products_(products) {}

  bool supports(const Conv2d::Shape& shape, const at::Tensor& input) const override {
    if (shape.kernel != kernel::kKernel || shape.stride != 1 || shape.padding != 1 || shape.groups != 1) return false;
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
