#include "model/networks.h"

#include "base/error.h"

namespace trainopt {
namespace {

class ResNetStem : public Unit {
 public:
  ResNetStem(Builder& builder, StemKind kind, int64_t channels)
      : pools_(kind == StemKind::imagenet),
        conv1_(builder, "conv1", pools_ ? Conv2d::Shape{channels, 64, 7, 2, 3} : Conv2d::Shape{channels, 64, 3, 1, 1}),
        bn1_(builder, "bn1", 64),
        operations_(builder.operations()) {}

  std::string name() const override { return "stem"; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    const auto& norm = *operations_->batch_norm;
    const at::Tensor x = conv1_.forward(input);
    return pools_ ? norm.stem_pool(x, bn1_, context) : norm.batch_norm_relu(x, bn1_, context);
  }
  SampleShape shape_after(const SampleShape& input, double& flops) const override {
    SampleShape shape = conv1_.shape_after(input, flops);
    if (pools_)
      for (const size_t side : {1, 2}) shape[side] = (shape[side] + 2 * 1 - 3) / 2 + 1;
    return shape;
  }

 private:
  bool pools_;
  Conv2d conv1_;
  BatchNorm2d bn1_;
  std::shared_ptr<const Operations> operations_;
};

/// The projection on the shortcut, used if the input's shape differs from the block's output.
struct Projection {
  Projection(Builder& builder, const std::string& name, int64_t in, int64_t out, int64_t stride)
      : conv(builder, name + ".downsample.0", {in, out, 1, stride}), norm(builder, name + ".downsample.1", out) {}
  Conv2d conv;
  BatchNorm2d norm;
};

class ResidualBlock : public Unit {
 public:
  ResidualBlock(Builder& builder, std::string name) : name_(std::move(name)), operations_(builder.operations()) {}
  std::string name() const override { return name_; }

 protected:
  const BatchNormOperations& norm() const { return *operations_->batch_norm; }
  at::Tensor shortcut(const at::Tensor& input, const ForwardContext& context) const {
    return downsample_ ? norm().batch_norm(downsample_->conv.forward(input), downsample_->norm, context) : input;
  }
  void add_shortcut_flops(const SampleShape& input, double& flops) const {
    if (downsample_) downsample_->conv.shape_after(input, flops);
  }

  std::string name_;
  std::shared_ptr<const Operations> operations_;
  std::optional<Projection> downsample_;  // created last: torchvision lists it after the block's own layers
};

class BasicBlock : public ResidualBlock {
 public:
  static constexpr int64_t kExpansion = 1;
  BasicBlock(Builder& builder, const std::string& name, int64_t in, int64_t width, int64_t stride)
      : ResidualBlock(builder, name),
        conv1_(builder, name + ".conv1", {in, width, 3, stride, 1}),
        bn1_(builder, name + ".bn1", width),
        conv2_(builder, name + ".conv2", {width, width, 3, 1, 1}),
        bn2_(builder, name + ".bn2", width) {
    if (stride != 1 || in != width) downsample_.emplace(builder, name, in, width, stride);
  }
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    at::Tensor x = norm().batch_norm_relu(conv1_.forward(input), bn1_, context);
    x = conv2_.forward(x);
    return norm().batch_norm_add_relu(x, bn2_, shortcut(input, context), context);
  }
  SampleShape shape_after(const SampleShape& input, double& flops) const override {
    add_shortcut_flops(input, flops);
    return conv2_.shape_after(conv1_.shape_after(input, flops), flops);
  }

 private:
  Conv2d conv1_;
  BatchNorm2d bn1_;
  Conv2d conv2_;
  BatchNorm2d bn2_;
};

class Bottleneck : public ResidualBlock {
 public:
  static constexpr int64_t kExpansion = 4;
  Bottleneck(Builder& builder, const std::string& name, int64_t in, int64_t width, int64_t stride)
      : ResidualBlock(builder, name),
        conv1_(builder, name + ".conv1", {in, width, 1}),
        bn1_(builder, name + ".bn1", width),
        conv2_(builder, name + ".conv2", {width, width, 3, stride, 1}),
        bn2_(builder, name + ".bn2", width),
        conv3_(builder, name + ".conv3", {width, width * kExpansion, 1}),
        bn3_(builder, name + ".bn3", width * kExpansion) {
    if (stride != 1 || in != width * kExpansion) downsample_.emplace(builder, name, in, width * kExpansion, stride);
  }
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    at::Tensor x = norm().batch_norm_relu(conv1_.forward(input), bn1_, context);
    x = norm().batch_norm_relu(conv2_.forward(x), bn2_, context);
    x = conv3_.forward(x);
    return norm().batch_norm_add_relu(x, bn3_, shortcut(input, context), context);
  }
  SampleShape shape_after(const SampleShape& input, double& flops) const override {
    add_shortcut_flops(input, flops);
    return conv3_.shape_after(conv2_.shape_after(conv1_.shape_after(input, flops), flops), flops);
  }

 private:
  Conv2d conv1_;
  BatchNorm2d bn1_;
  Conv2d conv2_;
  BatchNorm2d bn2_;
  Conv2d conv3_;
  BatchNorm2d bn3_;
};

class Head : public Unit {
 public:
  Head(Builder& builder, int64_t in, int64_t classes)
      : fc_(builder, "fc", in, classes), operations_(builder.operations()) {}
  std::string name() const override { return "head"; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    return operations_->head->head(input, fc_, context);
  }
  SampleShape shape_after(const SampleShape& input, double& flops) const override {
    return fc_.shape_after({input[0]}, flops);
  }

 private:
  Linear fc_;
  std::shared_ptr<const Operations> operations_;
};

template <class B>
void build(Builder& builder, const ModelConfig& config, int64_t input_channels, const std::array<int64_t, 4>& depths) {
  builder.add<ResNetStem>(config.stem, input_channels);
  int64_t in = 64;
  for (int64_t layer = 0; layer < 4; ++layer) {
    const int64_t width = int64_t{64} << layer;
    for (int64_t block = 0; block < depths[static_cast<size_t>(layer)]; ++block) {
      builder.add<B>(fmt::format("layer{}.{}", layer + 1, block), in, width, layer > 0 && block == 0 ? 2 : 1);
      in = width * B::kExpansion;
    }
  }
  builder.add<Head>(in, classes_of(config));
}

}  // namespace

void build_resnet(Builder& builder, const ModelConfig& config, const InputShape& input) {
  switch (config.name) {
    case ModelKind::resnet18:
      return build<BasicBlock>(builder, config, input.channels, {2, 2, 2, 2});
    case ModelKind::resnet34:
      return build<BasicBlock>(builder, config, input.channels, {3, 4, 6, 3});
    case ModelKind::resnet50:
      return build<Bottleneck>(builder, config, input.channels, {3, 4, 6, 3});
    default:
      break;
  }
  throw BrokenInvariant("build_resnet was called for another network");
}

}  // namespace trainopt
