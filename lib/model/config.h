// The `model` section of a recipe.
#pragma once

#include "config/describe.h"

namespace trainopt {

enum class ModelKind { resnet18, resnet34, resnet50, vit_s_16, vit_b_16, vit, mlp };
template <>
struct Choices<ModelKind> {
  static constexpr std::array all = {Choice<ModelKind>{"resnet18", ModelKind::resnet18},
                                     Choice<ModelKind>{"resnet34", ModelKind::resnet34},
                                     Choice<ModelKind>{"resnet50", ModelKind::resnet50},
                                     Choice<ModelKind>{"vit_s_16", ModelKind::vit_s_16},
                                     Choice<ModelKind>{"vit_b_16", ModelKind::vit_b_16},
                                     Choice<ModelKind>{"vit", ModelKind::vit},
                                     Choice<ModelKind>{"mlp", ModelKind::mlp}};
};

constexpr bool is_resnet(ModelKind kind) {
  return kind == ModelKind::resnet18 || kind == ModelKind::resnet34 || kind == ModelKind::resnet50;
}

enum class StemKind { imagenet, cifar };
template <>
struct Choices<StemKind> {
  static constexpr std::array all = {Choice<StemKind>{"imagenet", StemKind::imagenet},
                                     Choice<StemKind>{"cifar", StemKind::cifar}};
};

struct ModelConfig {
  ModelKind name = ModelKind::resnet18;
  int64_t num_classes = 10;
  StemKind stem = StemKind::imagenet;
  std::vector<int64_t> hidden{512, 512};
  int64_t patch = 16, layers = 12, heads = 3, width = 192;
  double dropout = 0.0;
  std::optional<std::string> weights = std::nullopt;
  bool replace_head = false;
};

template <class V>
void describe(V& v, ModelConfig& c) {
  v.field("name", c.name, "The network. vit is a vision transformer of any size.");
  v.field("num_classes", c.num_classes, "Outputs of the last layer.", in_range(1, 1e7));
  v.field("stem", c.stem,
          "resnets: imagenet is 7×7 with stride 2 and a max-pool; cifar is 3×3 with stride 1 and no pool.", any(), {},
          {}, only_for("name", "resnet18", "resnet34", "resnet50"));
  v.field("hidden", c.hidden, "mlp: widths of the hidden layers.", in_range(1, 1e7), {}, {}, only_for("name", "mlp"));
  v.field("patch", c.patch, "vit: side of a patch in pixels. The images' sides must be multiples of it.",
          in_range(1, 1e4), alias("patch_size"), {}, only_for("name", "vit"));
  v.field("layers", c.layers, "vit: encoder blocks.", in_range(1, 1e4), alias("num_layers", "depth"), {},
          only_for("name", "vit"));
  v.field("heads", c.heads, "vit: attention heads of a block.", in_range(1, 1e4), alias("num_heads"), {},
          only_for("name", "vit"));
  v.field("width", c.width, "vit: values of a token, a multiple of heads; the blocks' MLPs are four times as wide.",
          in_range(1, 1e6), alias("hidden_dim", "embed_dim"), {}, only_for("name", "vit"));
  v.field("dropout", c.dropout,
          "Dropout probability. mlp: after hidden layers; vits: of the embedded patches and within the blocks.",
          half_open(0.0, 1.0), {}, {}, only_for("name", "mlp", "vit", "vit_s_16", "vit_b_16"));
  v.field("weights", c.weights, "Initial weights: a safetensors file with torchvision's parameter names.");
  v.field("replace_head", c.replace_head,
          "Take all initial weights but the last layer's from model.weights, for another number of classes.");
}

}  // namespace trainopt
