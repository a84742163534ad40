#include "optimizations/amp/amp.h"

#include "base/units.h"
#include "device/autocast.h"
#include "device/differentiable.h"
#include "device/tensor.h"
#include "model/operations.h"
#include "optimizations/info.h"
#include "train/optimizer/gradients.h"
#include "train/plan.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/record_function.h>

#include <numeric>

namespace trainopt::amp {
namespace {

class Autocast : public Precision {
 public:
  Autocast(at::Device device, at::ScalarType type) : device_(device.type()), type_(type) {}
  AutocastGuard autocast() override { return {device_, type_}; }
  void backward(const at::Tensor& loss) override { loss.backward(); }
  at::Tensor unscale(Gradients&) override { return {}; }
  void update(const at::Tensor&, const at::Tensor&) override {}

 private:
  at::DeviceType device_;
  at::ScalarType type_;
};

/// torch.amp's gradient scaler. Scale, growth counter and overflow stay on the device, so the host never waits for
/// them.
class ScaledAutocast : public Autocast {
 public:
  ScaledAutocast(at::Device device, const Config& config)
      : Autocast(device, at::kHalf), growth_interval_(config.growth_interval) {
    const auto on_device = at::TensorOptions(device);
    scale_ = at::full({}, config.init_scale, on_device.dtype(at::kFloat));
    growth_tracker_ = at::zeros({}, on_device.dtype(at::kInt));
    used_ = scale_.clone();
    skipped_ = at::zeros({2}, on_device.dtype(at::kLong));
  }

  void backward(const at::Tensor& loss) override { (loss * scale_).backward(); }

  at::Tensor unscale(Gradients& gradients) override {
    const at::NoGradGuard no_grad;
    at::Tensor overflow = at::zeros({}, scale_.options());
    // In double: 1/scale in float may round, and a power of two must stay one.
    const at::Tensor inverse = scale_.to(at::kDouble).reciprocal().to(at::kFloat);
    gradients.unscale(inverse, overflow);
    gradients.agree(overflow);
    used_.copy_(scale_);
    return overflow;
  }

  void update(const at::Tensor& overflow, const at::Tensor& rolled_back) override {
    const at::Tensor skips = (rolled_back.defined() ? overflow * (1 - rolled_back) : overflow).to(at::kLong);
    skipped_.add_(skips);
    skipped_[1].mul_(skips);
    const at::Tensor scale = rolled_back.defined() ? scale_.clone() : scale_,
                     growth_tracker = rolled_back.defined() ? growth_tracker_.clone() : growth_tracker_;
    at::_amp_update_scale_(scale_, growth_tracker_, overflow, 2.0, 0.5, growth_interval_);
    if (!rolled_back.defined()) return;
    scale_.copy_(at::where(rolled_back > 0, scale, scale_));
    growth_tracker_.copy_(at::where(rolled_back > 0, growth_tracker, growth_tracker_));
  }

  at::Tensor loss_scale() const override { return used_; }
  at::Tensor skipped_updates() const override { return skipped_; }

  void save(ArchiveWriter& archive) const override {
    archive.tensor("precision.scale", scale_);
    archive.tensor("precision.growth_tracker", growth_tracker_);
  }
  void load(const ArchiveReader& archive) override {
    archive.tensor("precision.scale", scale_);
    archive.tensor("precision.growth_tracker", growth_tracker_);
  }

 private:
  int64_t growth_interval_;
  at::Tensor scale_, growth_tracker_, used_, skipped_;
};

Receipt receipt(const StepTrace& seen, at::ScalarType type) {
  const std::string wanted = type_name(type);
  const auto calls = multiplications_by_type(seen);
  const int64_t all = std::accumulate(calls.begin(), calls.end(), int64_t{0},
                                      [](int64_t sum, const auto& c) { return sum + c.second; });
  const int64_t low = calls.contains(wanted) ? calls.at(wanted) : 0;
  const int64_t own = seen.calls(is_own_convolution);
  const std::string computed =
      own > 0 ? fmt::format("; {} of them convolutions by own kernels, with float32 sums", own) : "";
  const int64_t skips = seen.skipped_updates ? seen.skipped_updates->all : 0;
  const std::string skipped =
      skips > 0 ? fmt::format("; {} skipped because gradients overflowed", counted(skips, "update")) : "";
  return {.observed = fmt::format("{} of {} convolutions and matrix products ran in {}{}{}", low, all, wanted, computed,
                                  skipped),
          .effective = low > 0,
          .reason = low > 0 ? "" : "no operation of this model ran in 16 bits"};
}

}  // namespace

void check(OptionChecks& checks, const Config& config) {
  const Config standard;
  const bool scales = config.dtype == Type::float16;
  checks.computes_in_bfloat16 = !scales;
  if (!scales && config.init_scale != standard.init_scale)
    checks.refuse("optimizations.amp.init_scale", "only float16 has a loss scale");
  if (!scales && config.growth_interval != standard.growth_interval)
    checks.refuse("optimizations.amp.growth_interval", "only float16 has a loss scale");
  if (scales && checks.stale_updates)
    checks.refuse("parallel.async_updates.staleness",
                  "float16's loss scale may change before the gradients are applied; use amp.dtype: bfloat16");
}

Outcome apply(Plan& plan, const Config& config) {
  const auto type = config.dtype == Type::bfloat16 ? at::kBFloat16 : at::kHalf;
  if (plan.device.is_cuda() && type == at::kBFloat16 && plan.machine.sm < 80)
    return Outcome::none(fmt::format("bfloat16 needs a GPU from sm_80; this one is sm_{}", plan.machine.sm));
  plan.tensor_format.compute_type = type;
  if (type == at::kHalf)
    plan.precision.fill(
        "amp", fmt::format("float16 autocast, initial loss scale {}", config.init_scale),
        [config](const BuildContext& context) { return std::make_unique<ScaledAutocast>(context.device, config); });
  else
    plan.precision.fill("amp", "bfloat16 autocast", [](const BuildContext& context) {
      return std::make_unique<Autocast>(context.device, at::kBFloat16);
    });
  std::string what = type == at::kHalf ? "float16 with a loss scale" : "bfloat16";
  if (plan.device.is_cpu() && plan.model.layers.convolutions() > 0 && !cpu_convolves(type)) {
    plan.operations.convolution.wrap("amp", "computed in float32 under autocast",
                                     [](const BuildContext&, std::unique_ptr<ConvolutionOperations> inner) {
                                       return make_float32_convolutions(std::move(inner));
                                     });
    what += "; this CPU has no instructions for the type, so convolutions read and write it but compute in float32";
  }
  const auto doubt = [type](const Plan& complete) -> std::string {
    const bool converts = complete.device.is_cpu() && complete.model.layers.convolutions() == 0 && !cpu_convolves(type);
    return converts ? fmt::format("this CPU has no instructions for products of {}", type_name(type)) : "";
  };
  return Outcome::applied(what, [type](const StepTrace& seen) { return receipt(seen, type); }).doubted(doubt);
}

namespace {

/// Casts to float32, convolves and casts back. Hides the float32 operations from a StepTrace: the caller's label stands
/// for them.
at::Tensor convolve_in_float32(const at::Tensor& input, const at::Tensor& weight, const Conv2d::Shape& shape) {
  const auto forward = [&](std::vector<at::Tensor>& saved) {
    const at::DisableRecordFunctionGuard unseen;
    saved = {input, weight};
    return at::convolution(input.to(at::kFloat), weight.to(at::kFloat), {}, {shape.stride, shape.stride},
                           {shape.padding, shape.padding}, {1, 1}, false, {0, 0}, shape.groups)
        .to(input.scalar_type());
  };
  const auto backward = [shape](const BackwardCall& call) -> std::vector<at::Tensor> {
    const at::Tensor &x = call.saved[0], &w = call.saved[1];
    RECORD_FUNCTION(kConvolutionGradientLabel, std::vector<c10::IValue>({x}));
    const at::DisableRecordFunctionGuard unseen;
    const auto [of_x, of_w, of_bias] = at::convolution_backward(
        call.gradient.to(at::kFloat), x.to(at::kFloat), w.to(at::kFloat), std::nullopt, {shape.stride, shape.stride},
        {shape.padding, shape.padding}, {1, 1}, false, {0, 0}, shape.groups, {call.needed[0], call.needed[1], false});
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
    return convolve_in_float32(x, w, shape);
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
