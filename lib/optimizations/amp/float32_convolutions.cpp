#include "optimizations/amp/float32_convolutions.h"

#include "device/autocast.h"
#include "device/differentiable.h"
#include "device/tensor.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

namespace trainopt::amp {
namespace {

/// Casts to float32, convolves and casts back. Hides the float32 operations from a StepTrace: the caller's label stands
/// for them.
at::Tensor convolve_in_float32(const at::Tensor& input, const at::Tensor& weight, int64_t stride, int64_t padding) {
  const auto forward = [&](std::vector<at::Tensor>& saved) {
    const at::DisableRecordFunctionGuard unseen;
    saved = {input, weight};
    return at::convolution(input.to(at::kFloat), weight.to(at::kFloat), {}, {stride, stride}, {padding, padding},
                           {1, 1}, false, {0, 0}, 1)
        .to(input.scalar_type());
  };
  const auto backward = [stride, padding](const BackwardCall& call) -> std::vector<at::Tensor> {
    const at::Tensor &x = call.saved[0], &w = call.saved[1];
    RECORD_FUNCTION(kConvolutionGradientLabel, std::vector<c10::IValue>({x}));
    const at::DisableRecordFunctionGuard unseen;
    const auto [of_x, of_w, of_bias] = at::convolution_backward(
        call.gradient.to(at::kFloat), x.to(at::kFloat), w.to(at::kFloat), std::nullopt, {stride, stride},
        {padding, padding}, {1, 1}, false, {0, 0}, 1, {call.needed[0], call.needed[1], false});
    const auto as = [](const at::Tensor& gradient, const at::Tensor& of) {
      return gradient.defined() ? gradient.to(of.scalar_type()) : gradient;
    };
    return {as(of_x, x), as(of_w, w)};
  };
  return differentiable({input, weight}, forward, backward);
}

class Float32Convolutions : public ConvolutionOperations {
 public:
  explicit Float32Convolutions(std::unique_ptr<ConvolutionOperations> inner) : inner_(std::move(inner)) {}

  bool supports(const Conv2d::Shape& shape, const at::Tensor& input) const override {
    return autocast_type(input.device().type()) || inner_->supports(shape, input);
  }

  at::Tensor forward(const Conv2d::Shape& shape, const at::Tensor& input, const at::Tensor& weight) const override {
    const auto type = autocast_type(input.device().type());
    if (!type || inner_->supports(shape, input)) return inner_->forward(shape, input, weight);
    const at::Tensor x = input.to(*type),
                     w = weight.to(*type);  // rounded as autocast does, also if weight is no 16-bit copy
    RECORD_FUNCTION(kConvolutionLabel, std::vector<c10::IValue>({x}));
    const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::DispatchKey::AutocastCPU);
    return convolve_in_float32(x, w, shape.stride, shape.padding);
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
