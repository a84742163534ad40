#include "model/vit.h"

#include "base/error.h"
#include "device/tensor.h"
#include "model/dropout.h"

#include <cmath>

namespace trainopt {
namespace {

constexpr double kEpsilon = 1e-6;  // of layer norms; torch's default is ten times this

struct Size : TransformerSize {
  int64_t patch;
};

Size size_of(const ModelConfig& config) {
  return {transformer_size(config), config.name == ModelKind::vit ? config.patch : 16};
}

/// From images to tokens: the class token, then the patches row by row, each with its position's vector added.
class PatchEmbedding : public Unit {
 public:
  PatchEmbedding(Builder& builder, const Size& size, const InputShape& input, double dropout_rate)
      : class_token_(builder.parameter("class_token", {1, 1, size.width}, InitialValues::constant(0))),
        conv_proj_(builder, "conv_proj", {input.channels, size.width, size.patch, size.patch},
                   InitialValues::truncated_normal(
                       1 / std::sqrt(static_cast<double>(input.channels * size.patch * size.patch)))),
        bias_(builder.parameter("conv_proj.bias", {size.width}, InitialValues::constant(0))),
        positions_(builder.parameter("encoder.pos_embedding",
                                     {1, (input.height / size.patch) * (input.width / size.patch) + 1, size.width},
                                     InitialValues::normal(0.02))),
        dropout_rate_(dropout_rate) {}

  std::string name() const override { return "patch_embedding"; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    const at::Tensor patches = conv_proj_.forward(input).flatten(2).transpose(1, 2) + bias_;
    const at::Tensor tokens = at::cat({class_token_.expand({input.size(0), 1, -1}), patches}, 1);
    return dropout(tokens + positions_, dropout_rate_, context);
  }
  SampleShape trace(const SampleShape& input, double& flops) const override {
    conv_proj_.trace(input, flops);
    return {positions_.size(1), positions_.size(2)};
  }

 private:
  at::Tensor class_token_;
  Conv2d conv_proj_;
  at::Tensor bias_;  // not the convolution's, whose slot has none
  at::Tensor positions_;
  double dropout_rate_;
};

/// torch.nn.MultiheadAttention of a sequence with itself.
class SelfAttention {
 public:
  SelfAttention(Builder& builder, const std::string& name, int64_t width, int64_t heads)
      : heads_(heads),
        in_proj_(builder, name + ".in_proj_", width, 3 * width,
                 {InitialValues::xavier_uniform(width, 3 * width), InitialValues::constant(0)}),
        out_proj_(builder, name + ".out_proj.", width, width,
                  {InitialValues::torch_linear(width), InitialValues::constant(0)}),
        operations_(builder.operations()) {}

  at::Tensor forward(const at::Tensor& input) const {
    const std::vector<at::Tensor> parts = in_proj_.forward(input).split(input.size(2), 2);
    const auto by_head = [&](const at::Tensor& part) { return part.unflatten(2, {heads_, -1}).transpose(1, 2); };
    const at::Tensor attended =
        operations_->attention->attention(by_head(parts[0]), by_head(parts[1]), by_head(parts[2]));
    return out_proj_.forward(attended.transpose(1, 2).flatten(2));
  }
  SampleShape trace(const SampleShape& input, double& flops) const {
    const auto tokens = static_cast<double>(input[0]), width = static_cast<double>(input[1]);
    in_proj_.trace(input, flops);
    flops += 2 * 2 * tokens * tokens * width;  // scores, and the values that they weigh
    return out_proj_.trace(input, flops);
  }

 private:
  int64_t heads_;
  Linear in_proj_, out_proj_;
  std::shared_ptr<const Operations> operations_;
};

class EncoderBlock : public Unit {
 public:
  EncoderBlock(Builder& builder, std::string name, const Size& size, double dropout_rate)
      : name_(std::move(name)),
        ln_1_(builder, name_ + ".ln_1", size.width, kEpsilon),
        self_attention_(builder, name_ + ".self_attention", size.width, size.heads),
        ln_2_(builder, name_ + ".ln_2", size.width, kEpsilon),
        mlp_0_(builder, name_ + ".mlp.0.", size.width, 4 * size.width, mlp_values(size.width)),
        mlp_3_(builder, name_ + ".mlp.3.", 4 * size.width, size.width, mlp_values(size.width)),
        dropout_rate_(dropout_rate) {}

  std::string name() const override { return name_; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    const auto dropped = [&](const at::Tensor& values) { return dropout(values, dropout_rate_, context); };
    const at::Tensor attended = input + dropped(self_attention_.forward(ln_1_.forward(input)));
    const at::Tensor hidden = dropped(at::gelu(mlp_0_.forward(ln_2_.forward(attended))));
    return attended + dropped(mlp_3_.forward(hidden));
  }
  SampleShape trace(const SampleShape& input, double& flops) const override {
    return mlp_3_.trace(mlp_0_.trace(self_attention_.trace(input, flops), flops), flops);
  }

 private:
  static Linear::Values mlp_values(int64_t width) {
    return {InitialValues::xavier_uniform(width, 4 * width), InitialValues::normal(1e-6)};
  }

  std::string name_;
  LayerNorm ln_1_;
  SelfAttention self_attention_;
  LayerNorm ln_2_;
  Linear mlp_0_, mlp_3_;
  double dropout_rate_;
};

/// The class token, normalised. torchvision normalises all tokens and then drops the others.
class ClassToken : public Unit {
 public:
  ClassToken(Builder& builder, int64_t width) : ln_(builder, "encoder.ln", width, kEpsilon) {}
  std::string name() const override { return "encoder.ln"; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext&) override {
    return ln_.forward(input.select(1, 0));
  }
  SampleShape trace(const SampleShape& input, double&) const override { return {input[1]}; }

 private:
  LayerNorm ln_;
};

class ClassHead : public Unit {
 public:
  ClassHead(Builder& builder, int64_t width, int64_t classes)
      : head_(builder, "heads.head.", width, classes, {InitialValues::constant(0), InitialValues::constant(0)}) {}
  std::string name() const override { return "head"; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext&) override { return head_.forward(input); }
  SampleShape trace(const SampleShape& input, double& flops) const override { return head_.trace(input, flops); }

 private:
  Linear head_;
};

}  // namespace

void build_vit(Builder& builder, const ModelConfig& config, const InputShape& input) {
  const Size size = size_of(config);
  if (input.height % size.patch != 0 || input.width % size.patch != 0)
    throw UserError(
        fmt::format("model.name: {} divides images into patches of {} × {} pixels, and {} × {} pixels cannot be "
                    "divided so; change the size in data",
                    word_of(config.name), size.patch, size.patch, input.height, input.width));
  builder.add<PatchEmbedding>(size, input, config.dropout);
  for (int64_t layer = 0; layer < size.layers; ++layer)
    builder.add<EncoderBlock>(fmt::format("encoder.layers.encoder_layer_{}", layer), size, config.dropout);
  builder.add<ClassToken>(size.width);
  builder.add<ClassHead>(size.width, config.num_classes);
}

}  // namespace trainopt
