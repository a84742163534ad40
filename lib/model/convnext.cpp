#include "model/networks.h"

#include "base/error.h"
#include "device/tensor.h"
#include "model/layers.h"
#include "model/operations.h"

#include <array>

namespace trainopt {
namespace {

constexpr double kNormEpsilon = 1e-6, kLayerScale = 1e-6, kInitialDeviation = 0.02;
constexpr int64_t kLeastSide = 32;  // the sides are divided by 32

/// Stochastic depth (Huang et al., "Deep networks with stochastic depth", 2016), torchvision's with mode `row`: in
/// training leaves out a sample's values with the probability `rate`, and divides the others by 1 - rate.
at::Tensor stochastic_depth(const at::Tensor& input, double rate, const ForwardContext& context) {
  if (!context.training || rate == 0) return input;
  const at::Tensor kept = at::empty({input.size(0), 1, 1, 1}, input.options().dtype(at::kFloat))
                              .bernoulli_(1 - rate, context.generator)
                              .div_(1 - rate);
  return input * kept;
}

/// A convolution with a bias.
struct BiasedConv {
  BiasedConv(Builder& builder, const std::string& name, const Conv2d::Shape& shape)
      : conv(builder, name, shape, InitialValues::truncated_normal(kInitialDeviation)),
        bias(builder.parameter(name + ".bias", {shape.out}, InitialValues::constant(0))) {}
  at::Tensor forward(const at::Tensor& input) const {
    const at::Tensor output = conv.forward(input);
    return output + bias.to(output.scalar_type()).view({-1, 1, 1});
  }

  Conv2d conv;
  at::Tensor bias;  ///< not the convolution's, whose slot has none
};

/// Layer norm over the channels of each pixel.
at::Tensor norm_of_channels(const Operations& operations, const at::Tensor& input, const LayerNorm& norm) {
  return operations.layer_norm->layer_norm(input.permute({0, 2, 3, 1}), norm).permute({0, 3, 1, 2});
}

class Stem : public Unit {
 public:
  Stem(Builder& builder, int64_t channels, int64_t width)
      : conv_(builder, "features.0.0", {channels, width, 4, 4}),
        norm_(builder, "features.0.1", width, kNormEpsilon),
        operations_(builder.operations()) {}

  std::string name() const override { return "features.0"; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext&) override {
    return norm_of_channels(*operations_, conv_.forward(input), norm_);
  }
  SampleShape shape_after(const SampleShape& input, double& flops) const override {
    return conv_.conv.shape_after(input, flops);
  }

 private:
  BiasedConv conv_;
  LayerNorm norm_;
  std::shared_ptr<const Operations> operations_;
};

Linear linear_of(Builder& builder, const std::string& name, int64_t in, int64_t out) {
  return {
      builder, name + ".", in, out, {InitialValues::truncated_normal(kInitialDeviation), InitialValues::constant(0)}};
}

/// input + scale · mlp(norm(depthwise 7×7 convolution of input))
class Block : public Unit {
 public:
  Block(Builder& builder, const std::string& name, int64_t width, double rate)
      : name_(name),
        rate_(rate),
        scale_(builder.parameter(name + ".layer_scale", {width, 1, 1}, InitialValues::constant(kLayerScale))),
        conv_(builder, name + ".block.0", {width, width, 7, 1, 3, width}),
        norm_(builder, name + ".block.2", width, kNormEpsilon),
        mlp_in_(linear_of(builder, name + ".block.3", width, 4 * width)),
        mlp_out_(linear_of(builder, name + ".block.5", 4 * width, width)),
        operations_(builder.operations()) {
    ++builder.layers().gelus;
  }

  std::string name() const override { return name_; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    const at::Tensor pixels = conv_.forward(input).permute({0, 2, 3, 1});
    const at::Tensor hidden =
        operations_->gelu->linear_gelu(operations_->layer_norm->layer_norm(pixels, norm_), mlp_in_, GeluForm::exact);
    const at::Tensor result = scale_ * mlp_out_.forward(hidden).permute({0, 3, 1, 2});
    return stochastic_depth(result, rate_, context) + input;
  }
  SampleShape shape_after(const SampleShape& input, double& flops) const override {
    conv_.conv.shape_after(input, flops);
    mlp_out_.shape_after(mlp_in_.shape_after({input[1], input[2], input[0]}, flops), flops);
    return input;
  }

 private:
  std::string name_;
  double rate_;
  at::Tensor scale_;
  BiasedConv conv_;
  LayerNorm norm_;
  Linear mlp_in_, mlp_out_;
  std::shared_ptr<const Operations> operations_;
};

/// Halves the sides.
class Downsample : public Unit {
 public:
  Downsample(Builder& builder, const std::string& name, int64_t in, int64_t out)
      : name_(name),
        norm_(builder, name + ".0", in, kNormEpsilon),
        conv_(builder, name + ".1", {in, out, 2, 2}),
        operations_(builder.operations()) {}

  std::string name() const override { return name_; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext&) override {
    return conv_.forward(norm_of_channels(*operations_, input, norm_));
  }
  SampleShape shape_after(const SampleShape& input, double& flops) const override {
    return conv_.conv.shape_after(input, flops);
  }

 private:
  std::string name_;
  LayerNorm norm_;
  BiasedConv conv_;
  std::shared_ptr<const Operations> operations_;
};

class Classifier : public Unit {
 public:
  Classifier(Builder& builder, int64_t width, int64_t classes)
      : norm_(builder, "classifier.0", width, kNormEpsilon),
        linear_(linear_of(builder, "classifier.2", width, classes)),
        operations_(builder.operations()) {}

  std::string name() const override { return "classifier"; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext&) override {
    return linear_.forward(operations_->layer_norm->layer_norm(input.mean({2, 3}), norm_));
  }
  SampleShape shape_after(const SampleShape& input, double& flops) const override {
    return linear_.shape_after({input[0]}, flops);
  }

 private:
  LayerNorm norm_;
  Linear linear_;
  std::shared_ptr<const Operations> operations_;
};

}  // namespace

void build_convnext(Builder& builder, const ModelConfig& config, const InputShape& input) {
  constexpr std::array<int64_t, 4> kWidths{96, 192, 384, 768}, kBlocks{3, 3, 9, 3};
  constexpr double kLastBlock = 3 + 3 + 9 + 3 - 1;
  if (std::min(input.height, input.width) < kLeastSide)
    throw UserError(
        fmt::format("model.name: {} needs images of at least {} × {} pixels, and these have {} × {}; change "
                    "the size in data",
                    word_of(config.name), kLeastSide, kLeastSide, input.height, input.width));
  builder.add<Stem>(input.channels, kWidths[0]);
  int64_t feature = 1;
  double number = 0;
  for (size_t stage = 0; stage < kWidths.size(); ++stage) {
    for (int64_t block = 0; block < kBlocks[stage]; ++block)
      builder.add<Block>(fmt::format("features.{}.{}", feature, block), kWidths[stage],
                         config.stochastic_depth * number++ / kLastBlock);
    if (stage + 1 == kWidths.size()) break;
    builder.add<Downsample>(fmt::format("features.{}", feature + 1), kWidths[stage], kWidths[stage + 1]);
    feature += 2;
  }
  builder.add<Classifier>(kWidths.back(), classes_of(config));
}

}  // namespace trainopt
