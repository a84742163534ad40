#include "optimizations/amp/float32_convolutions.h"

#include "device/tensor.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

namespace trainopt::amp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Convolution : torch::autograd::Function<Convolution> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight, int64_t stride,
                            int64_t padding) {
    const at::DisableRecordFunctionGuard unseen;  // hides the float32 operations: the posted label stands for them
    context->save_for_backward({input, weight});
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    return at::convolution(input.to(at::kFloat), weight.to(at::kFloat), {}, {stride, stride}, {padding, padding},
                           {1, 1}, false, {0, 0}, 1)
        .to(input.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1];
    RECORD_FUNCTION(kConvolutionGradientLabel, std::vector<c10::IValue>({input}));
    const at::DisableRecordFunctionGuard unseen;
    const int64_t stride = context->saved_data["stride"].toInt(), padding = context->saved_data["padding"].toInt();
    const auto [of_input, of_weight, of_bias] =
        at::convolution_backward(gradients[0].to(at::kFloat), input.to(at::kFloat), weight.to(at::kFloat), std::nullopt,
                                 {stride, stride}, {padding, padding}, {1, 1}, false, {0, 0}, 1,
                                 {context->needs_input_grad(0), context->needs_input_grad(1), false});
    const auto as = [](const at::Tensor& gradient, const at::Tensor& of) {
      return gradient.defined() ? gradient.to(of.scalar_type()) : gradient;
    };
    return {as(of_input, input), as(of_weight, weight), {}, {}};
  }
};

class Float32Convolutions : public ConvolutionOperations {
 public:
  explicit Float32Convolutions(std::unique_ptr<ConvolutionOperations> inner) : inner_(std::move(inner)) {}

  bool supports(const Conv2d::Shape& shape, const at::Tensor& input) const override {
    return at::autocast::is_autocast_enabled(at::kCPU) || inner_->supports(shape, input);
  }

  at::Tensor forward(const Conv2d::Shape& shape, const at::Tensor& input, const at::Tensor& weight) const override {
    if (!at::autocast::is_autocast_enabled(at::kCPU) || inner_->supports(shape, input))
      return inner_->forward(shape, input, weight);
    const auto type = at::autocast::get_autocast_dtype(at::kCPU);
    const at::Tensor x = input.to(type),
                     w = weight.to(type);  // rounded as autocast does, also if weight is no 16-bit copy
    RECORD_FUNCTION(kConvolutionLabel, std::vector<c10::IValue>({x}));
    const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::DispatchKey::AutocastCPU);
    return Convolution::apply(x, w, shape.stride, shape.padding);
  }

 private:
  std::unique_ptr<ConvolutionOperations> inner_;
};

}  // namespace

bool cpu_convolves(at::ScalarType type) {
  const char* const question = type == at::kHalf
                                   ? "mkldnn::_is_mkldnn_fp16_supported"
                                   : "mkldnn::_is_mkldnn_bf16_supported";  // libtorch's check before each convolution
  return c10::Dispatcher::singleton().findSchemaOrThrow(question, "").typed<bool()>().call();
}

std::unique_ptr<ConvolutionOperations> make_float32_convolutions(std::unique_ptr<ConvolutionOperations> inner) {
  return std::make_unique<Float32Convolutions>(std::move(inner));
}

}  // namespace trainopt::amp
