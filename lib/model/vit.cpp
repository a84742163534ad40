#include "model/networks.h"

#include "base/error.h"
#include "device/tensor.h"
#include "model/layers.h"
#include "model/transformer_block.h"

#include <array>
#include <cmath>

namespace trainopt {
namespace {

constexpr double kVitEpsilon = 1e-6;  // ε of layer norms; torch's default is ten times this

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
      : class_token_(
            builder.parameter("class_token", {1, 1, size.width}, InitialValues::constant(0), ParameterKind::embedding)),
        conv_proj_(builder, "conv_proj", {input.channels, size.width, size.patch, size.patch},
                   InitialValues::truncated_normal(
                       1 / std::sqrt(static_cast<double>(input.channels * size.patch * size.patch)))),
        bias_(builder.parameter("conv_proj.bias", {size.width}, InitialValues::constant(0))),
        positions_(builder.parameter("encoder.pos_embedding",
                                     {1, (input.height / size.patch) * (input.width / size.patch) + 1, size.width},
                                     InitialValues::normal(0.02), ParameterKind::embedding)),
        dropout_rate_(dropout_rate) {}

  std::string name() const override { return "patch_embedding"; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    const at::Tensor patches = conv_proj_.forward(input).flatten(2).transpose(1, 2) + bias_;
    const at::Tensor tokens = at::cat({class_token_.expand({input.size(0), 1, -1}), patches}, 1);
    return dropout(tokens + positions_, dropout_rate_, context);
  }
  SampleShape shape_after(const SampleShape& input, double& flops) const override {
    conv_proj_.shape_after(input, flops);
    return {positions_.size(1), positions_.size(2)};
  }

 private:
  at::Tensor class_token_;
  Conv2d conv_proj_;
  at::Tensor bias_;  // not the convolution's, whose slot has none
  at::Tensor positions_;
  double dropout_rate_;
};

/// torch.nn.MultiheadAttention.
SelfAttention self_attention(Builder& builder, const std::string& name, const Size& size) {
  Linear in(builder, name + ".in_proj_", size.width, 3 * size.width,
            {InitialValues::xavier_uniform(size.width, 3 * size.width), InitialValues::constant(0)});
  Linear out(builder, name + ".out_proj.", size.width, size.width,
             {InitialValues::torch_linear(size.width), InitialValues::constant(0)});
  return {builder, std::move(in), std::move(out), size.heads, {}};
}

TransformerBlock::Parts encoder_block(Builder& builder, const std::string& name, const Size& size, double dropout) {
  const int64_t width = size.width;
  const Linear::Values mlp_values{InitialValues::xavier_uniform(width, 4 * width), InitialValues::normal(1e-6)};
  return {.name = name,
          .ln_1 = {builder, name + ".ln_1", width, kVitEpsilon},
          .attention = self_attention(builder, name + ".self_attention", size),
          .ln_2 = {builder, name + ".ln_2", width, kVitEpsilon},
          .mlp_in = {builder, name + ".mlp.0.", width, 4 * width, mlp_values},
          .mlp_out = {builder, name + ".mlp.3.", 4 * width, width, mlp_values},
          .gelu = GeluForm::exact,
          .dropout = dropout,
          .drops_hidden = true};
}

/// The class token, normalised. torchvision normalises all tokens and then drops the others.
class ClassToken : public Unit {
 public:
  ClassToken(Builder& builder, int64_t width)
      : ln_(builder, "encoder.ln", width, kVitEpsilon), operations_(builder.operations()) {}
  std::string name() const override { return "encoder.ln"; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext&) override {
    return operations_->layer_norm->layer_norm(input.select(1, 0), ln_);
  }
  SampleShape shape_after(const SampleShape& input, double&) const override { return {input[1]}; }

 private:
  LayerNorm ln_;
  std::shared_ptr<const Operations> operations_;
};

class ClassHead : public Unit {
 public:
  ClassHead(Builder& builder, int64_t width, int64_t classes)
      : head_(builder, "heads.head.", width, classes, {InitialValues::constant(0), InitialValues::constant(0)}) {}
  std::string name() const override { return "head"; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext&) override { return head_.forward(input); }
  SampleShape shape_after(const SampleShape& input, double& flops) const override {
    return head_.shape_after(input, flops);
  }

 private:
  Linear head_;
};

/// A part of a name in other files, and what is in its place here. With `begins`, only at a name's beginning.
struct OtherName {
  std::string_view theirs, ours;
  bool begins = false;
};
constexpr std::array kOtherNames = {
    // torchvision's until version 0.12, which the weights that it offers for download still have
    OtherName{".mlp.linear_1.", ".mlp.0."}, OtherName{".mlp.linear_2.", ".mlp.3."},
    // timm's
    OtherName{"cls_token", "class_token", true}, OtherName{"pos_embed", "encoder.pos_embedding", true},
    OtherName{"patch_embed.proj.", "conv_proj.", true}, OtherName{"blocks.", "encoder.layers.encoder_layer_", true},
    OtherName{"norm.", "encoder.ln.", true}, OtherName{"head.", "heads.head.", true}, OtherName{".norm1.", ".ln_1."},
    OtherName{".norm2.", ".ln_2."}, OtherName{".attn.qkv.", ".self_attention.in_proj_"},
    OtherName{".attn.proj.", ".self_attention.out_proj."}, OtherName{".mlp.fc1.", ".mlp.0."},
    OtherName{".mlp.fc2.", ".mlp.3."}};

std::string vit_name_of_file(const std::string& name) {
  std::string current = name;
  for (const OtherName& other : kOtherNames) {
    const size_t at = current.find(other.theirs);
    if (other.begins ? at == 0 : at != std::string::npos) current.replace(at, other.theirs.size(), other.ours);
  }
  return current;
}

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
    builder.add<TransformerBlock>(
        encoder_block(builder, fmt::format("encoder.layers.encoder_layer_{}", layer), size, config.dropout));
  builder.add<ClassToken>(size.width);
  builder.add<ClassHead>(size.width, classes_of(config));
  builder.names_in_files(vit_name_of_file);
}

}  // namespace trainopt
