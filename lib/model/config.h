// The `model` section of a recipe.
#pragma once

#include "config/describe.h"
#include "model/catalogue.h"

namespace trainopt {

/// The sizes that Radford et al. 2019 published: 124, 355 and 774 million parameters.
enum class Gpt2Size { small, medium, large };
template <>
struct Choices<Gpt2Size> {
  static constexpr std::array all = {Choice<Gpt2Size>{"small", Gpt2Size::small},
                                     Choice<Gpt2Size>{"medium", Gpt2Size::medium},
                                     Choice<Gpt2Size>{"large", Gpt2Size::large}};
};

enum class StemKind { imagenet, cifar };
template <>
struct Choices<StemKind> {
  static constexpr std::array all = {Choice<StemKind>{"imagenet", StemKind::imagenet},
                                     Choice<StemKind>{"cifar", StemKind::cifar}};
};

/// What a program of the user's own returns (model/task.h).
enum class ModelTask { automatic, classification, language_model, loss };
template <>
struct Choices<ModelTask> {
  static constexpr std::array all = {
      Choice<ModelTask>{"auto", ModelTask::automatic}, Choice<ModelTask>{"classification", ModelTask::classification},
      Choice<ModelTask>{"language_model", ModelTask::language_model}, Choice<ModelTask>{"loss", ModelTask::loss}};
};

struct ModelConfig {
  ModelKind name = ModelKind::resnet18;
  std::optional<AutoOr<int64_t>> num_classes = std::nullopt;
  StemKind stem = StemKind::imagenet;
  std::vector<int64_t> hidden{512, 512};
  int64_t patch = 16;
  std::optional<Gpt2Size> size;
  std::optional<int64_t> layers, heads, width;
  int64_t context = 1024, vocabulary = 50257;
  double dropout = 0.0;
  double stochastic_depth = 0.1;
  std::optional<std::string> path = std::nullopt, program = std::nullopt, evaluation_path = std::nullopt;
  std::string units = "blocks";
  ModelTask task = ModelTask::automatic;
  std::optional<std::string> weights = std::nullopt;
  bool replace_head = false;
};

/// The plan resolves auto; without data it is 10, as without the key.
constexpr int64_t classes_of(const ModelConfig& c) { return c.num_classes ? c.num_classes->value.value_or(10) : 10; }

/// Requires a model with attention.
constexpr TransformerSize transformer_size(const ModelConfig& c) {
  TransformerSize size = traits_of(c.name).transformer.value();
  if (c.size == Gpt2Size::medium) size = {.layers = 24, .heads = 16, .width = 1024};
  if (c.size == Gpt2Size::large) size = {.layers = 36, .heads = 20, .width = 1280};
  return {c.layers.value_or(size.layers), c.heads.value_or(size.heads), c.width.value_or(size.width)};
}

/// The keys of a program of the user's own.
template <class V>
void describe_program(V& v, ModelConfig& c) {
  v.field("path", c.path, "exported: the .pt2 file that torch.export.save wrote, of a model in training mode.", any(),
          {}, only_for_models_with("path"));
  v.field("program", c.program, "exported: which program of the file. null: its only one.", any(), {},
          only_for_models_with("program"));
  v.field(
      "evaluation_path", c.evaluation_path,
      "exported: the same model exported after eval(), to evaluate with. null: the program, without dropout and so on.",
      any(), {}, only_for_models_with("evaluation_path"));
  v.field("units", c.units,
          "exported: which parts are recomputed or sharded as one: blocks (modules that consist of modules), layers "
          "(wherever one tensor is passed on), or a pattern with * and ? (not dots) for the names of modules.",
          any(), {}, only_for_models_with("units"));
  v.field("task", c.task,
          "exported: what the program returns: classification (logits of classes), language_model (logits of tokens), "
          "or loss (its own loss, from the input and the target). auto: by what it takes and returns.",
          any(), {}, only_for_models_with("task"));
}

template <class V>
void describe(V& v, ModelConfig& c) {
  v.field(
      "name", c.name,
      "The network. vit is a vision transformer of any size; gpt2 is a language model; exported is a program of your "
      "own that torch.export saved.");
  v.field(
      "num_classes", c.num_classes,
      "Outputs of the last layer; auto: as many as the data has classes. null: 10, or those of the program. exported: "
      "only with replace_head.",
      in_range(1, 1e7), {}, only_for_models_with("num_classes"));
  v.field("stem", c.stem,
          "resnets: imagenet is 7×7 with stride 2 and a max-pool; cifar is 3×3 with stride 1 and no pool.", any(), {},
          only_for_models_with("stem"));
  v.field("hidden", c.hidden, "mlp: widths of the hidden layers.", in_range(1, 1e7), {},
          only_for_models_with("hidden"));
  v.field("patch", c.patch, "vit: side of a patch in pixels. The images' sides must be multiples of it.",
          in_range(1, 1e4), alias("patch_size"), only_for_models_with("patch"));
  v.field("size", c.size,
          "gpt2: a published size: 12 layers, 12 heads and width 768; 24, 16 and 1024; 36, 20 and 1280. null: small, "
          "unless layers, heads or width say otherwise.",
          any(), {}, only_for_models_with("size"));
  v.field("layers", c.layers, "Blocks; null: 12.", in_range(1, 1e4),
          alias("num_layers", "num_hidden_layers", "n_layer", "n_layers", "depth"), only_for_models_with("layers"));
  v.field("heads", c.heads, "Attention heads of a block; null: vit 3, gpt2 12.", in_range(1, 1e4),
          alias("num_heads", "num_attention_heads", "n_head"), only_for_models_with("heads"));
  v.field("width", c.width,
          "Values of a token, a multiple of heads; the blocks' MLPs are four times as wide. null: vit 192, gpt2 768.",
          in_range(1, 1e6), alias("hidden_dim", "hidden_size", "embed_dim", "n_embd"), only_for_models_with("width"));
  v.field("context", c.context,
          "gpt2: tokens of a sample, and positions that the model knows. exported: tokens of a sample, if the program "
          "leaves them free.",
          in_range(1, 1 << 20), alias("n_positions", "max_position_embeddings", "n_ctx", "block_size", "seq_len"),
          only_for_models_with("context"));
  v.field("vocabulary", c.vocabulary, "gpt2: number of different tokens.", in_range(2, 1 << 24), alias("vocab_size"),
          only_for_models_with("vocabulary"));
  v.field("dropout", c.dropout,
          "Dropout probability. mlp: after hidden layers; vits: of the embedded patches and within the blocks; gpt2: "
          "of the embedded tokens, the attention's weights and the blocks' results.",
          half_open(0.0, 1.0), {}, only_for_models_with("dropout"));
  v.field("stochastic_depth", c.stochastic_depth,
          "convnext_tiny: probability that a sample skips the last block in training; it rises linearly from 0 in the "
          "first.",
          half_open(0.0, 1.0), alias("drop_path_rate", "stochastic_depth_prob"),
          only_for_models_with("stochastic_depth"));
  describe_program(v, c);
  v.field("weights", c.weights,
          "Initial weights: a safetensors file with torchvision's parameter names, Hugging Face's for gpt2, or those "
          "of the program.");
  v.field("replace_head", c.replace_head,
          "Start with a new last layer of num_classes outputs, and take all other initial weights from model.weights; "
          "exported: or from the program.");
}

}  // namespace trainopt
