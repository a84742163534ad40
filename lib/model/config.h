// The `model` section of a recipe.
#pragma once

#include "config/describe.h"

namespace trainopt {

enum class ModelKind { resnet18, resnet34, resnet50, mlp };
template <>
struct Choices<ModelKind> {
  static constexpr std::array all = {
      Choice<ModelKind>{"resnet18", ModelKind::resnet18}, Choice<ModelKind>{"resnet34", ModelKind::resnet34},
      Choice<ModelKind>{"resnet50", ModelKind::resnet50}, Choice<ModelKind>{"mlp", ModelKind::mlp}};
};

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
  double dropout = 0.0;
  std::optional<std::string> weights = std::nullopt;
};

template <class V>
void describe(V& v, ModelConfig& c) {
  v.field("name", c.name, "The network.");
  v.field("num_classes", c.num_classes, "Outputs of the last layer.", in_range(1, 1e7));
  v.field("stem", c.stem,
          "resnets: imagenet is 7×7 with stride 2 and a max-pool; cifar is 3×3 with stride 1 and no pool.", any(), {},
          {}, only_for("name", "resnet18", "resnet34", "resnet50"));
  v.field("hidden", c.hidden, "mlp: widths of the hidden layers.", in_range(1, 1e7), {}, {}, only_for("name", "mlp"));
  v.field("dropout", c.dropout, "mlp: dropout probability after hidden layers.", half_open(0.0, 1.0), {}, {},
          only_for("name", "mlp"));
  v.field("weights", c.weights, "Initial weights: a safetensors file with torchvision's parameter names.");
}

}  // namespace trainopt
