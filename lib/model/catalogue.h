// The networks that a recipe can name, each with what is known of it before it is built. Checks, options and messages
// ask for these traits, never for a network by name; optimizations ask for the layers that were built (LayerCounts).
// How each is built is a second list, in model.cpp.
#pragma once

#include "base/error.h"
#include "config/describe.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace trainopt {

enum class ModelKind { resnet18, resnet34, resnet50, convnext_tiny, vit_s_16, vit_b_16, vit, gpt2, mlp, exported };

/// The size of a transformer.
struct TransformerSize {
  int64_t layers, heads, width;
};

struct ModelTraits {
  ModelKind kind;
  std::string_view word;  ///< in recipes
  /// It is trained on text: its inputs are tokens, and it predicts each token's successor. Otherwise it classifies
  /// images.
  bool text = false;
  bool batch_norm = false;
  bool from_file = false;  ///< a file says what it is: images or text, how many classes
  std::optional<TransformerSize> transformer = std::nullopt;  ///< set if it has attention: the default size
  /// Keys of the section `model` that not every network has.
  std::array<std::string_view, 7> options = {};

  constexpr bool has(std::string_view option) const {
    return std::find(options.begin(), options.end(), option) != options.end();
  }
};

inline constexpr std::array kModels = {
    ModelTraits{
        .kind = ModelKind::resnet18, .word = "resnet18", .batch_norm = true, .options = {"num_classes", "stem"}},
    ModelTraits{
        .kind = ModelKind::resnet34, .word = "resnet34", .batch_norm = true, .options = {"num_classes", "stem"}},
    ModelTraits{
        .kind = ModelKind::resnet50, .word = "resnet50", .batch_norm = true, .options = {"num_classes", "stem"}},
    ModelTraits{
        .kind = ModelKind::convnext_tiny, .word = "convnext_tiny", .options = {"num_classes", "stochastic_depth"}},
    ModelTraits{.kind = ModelKind::vit_s_16,
                .word = "vit_s_16",
                .transformer = TransformerSize{12, 6, 384},
                .options = {"num_classes", "dropout"}},
    ModelTraits{.kind = ModelKind::vit_b_16,
                .word = "vit_b_16",
                .transformer = TransformerSize{12, 12, 768},
                .options = {"num_classes", "dropout"}},
    ModelTraits{.kind = ModelKind::vit,
                .word = "vit",
                .transformer = TransformerSize{12, 3, 192},
                .options = {"num_classes", "dropout", "patch", "layers", "heads", "width"}},
    ModelTraits{.kind = ModelKind::gpt2,
                .word = "gpt2",
                .text = true,
                .transformer = TransformerSize{12, 12, 768},
                .options = {"size", "layers", "heads", "width", "context", "vocabulary", "dropout"}},
    ModelTraits{.kind = ModelKind::mlp, .word = "mlp", .options = {"num_classes", "hidden", "dropout"}},
    ModelTraits{.kind = ModelKind::exported,
                .word = "exported",
                .from_file = true,
                .options = {"path", "program", "evaluation_path", "units", "context", "task", "num_classes"}}};

constexpr const ModelTraits& traits_of(ModelKind kind) {
  for (const ModelTraits& model : kModels)
    if (model.kind == kind) return model;
  throw BrokenInvariant("a network that is not in the catalogue");
}

template <>
struct Choices<ModelKind> {
  static constexpr auto all = [] {
    std::array<Choice<ModelKind>, kModels.size()> choices{};
    for (size_t i = 0; i < kModels.size(); ++i) choices[i] = {kModels[i].word, kModels[i].kind};
    return choices;
  }();
};

/// For an option of the section `model`: the networks that have it.
inline OnlyFor only_for_models_with(std::string_view option) {
  OnlyFor models{"name", {}};
  for (const ModelTraits& model : kModels)
    if (model.has(option)) models.values.push_back(model.word);
  return models;
}

}  // namespace trainopt
