#include "model/networks.h"

#include "base/error.h"
#include "device/tensor.h"
#include "model/layers.h"
#include "model/transformer_block.h"

#include <ATen/ops/embedding.h>

#include <cmath>

namespace trainopt {
namespace {

constexpr double kGpt2Epsilon = 1e-5;  // ε of layer norms
constexpr double kDeviation = 0.02;
constexpr const char* kTokens = "transformer.wte.weight";

struct Options : TransformerSize {
  int64_t context, vocabulary;
  double dropout;
};

/// Tokens and their positions.
class TokenEmbedding : public Unit {
 public:
  TokenEmbedding(Builder& builder, const Options& options)
      : tokens_(builder.parameter(kTokens, {options.vocabulary, options.width}, InitialValues::normal(kDeviation),
                                  ParameterKind::embedding)),
        positions_(builder.parameter("transformer.wpe.weight", {options.context, options.width},
                                     InitialValues::normal(kDeviation), ParameterKind::embedding)),
        dropout_rate_(options.dropout) {}

  std::string name() const override { return "transformer.embedding"; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    TRAINOPT_CHECK(input.dim() == 2 && input.size(1) <= positions_.size(0));
    // In float32, so that the gradients of equal tokens are summed in float32 whatever type the table has.
    const at::Tensor embedded = at::embedding(tokens_.to(at::kFloat), input) + positions_.narrow(0, 0, input.size(1));
    return dropout(embedded, dropout_rate_, context);
  }
  SampleShape shape_after(const SampleShape& input, double&) const override { return {input[0], tokens_.size(1)}; }

 private:
  at::Tensor tokens_, positions_;
  double dropout_rate_;
};

/// Hugging Face's Conv1D, whose files hold the matrix as in × out.
Linear conv1d(Builder& builder, const std::string& name, int64_t in, int64_t out, double deviation) {
  Linear layer(builder, name + ".", in, out, {InitialValues::normal(deviation), InitialValues::constant(0)});
  builder.transpose_in_files(name + ".weight");
  return layer;
}

TransformerBlock::Parts decoder_block(Builder& builder, const std::string& name, const Options& options) {
  const int64_t width = options.width;
  // Smaller where a result is added to the residual stream: each block adds two.
  const double of_branch = kDeviation / std::sqrt(2.0 * static_cast<double>(options.layers));
  const auto self_attention = [&] {
    Linear in = conv1d(builder, name + ".attn.c_attn", width, 3 * width, kDeviation);
    Linear out = conv1d(builder, name + ".attn.c_proj", width, width, of_branch);
    return SelfAttention(builder, std::move(in), std::move(out), options.heads,
                         {.causal = true, .dropout = options.dropout});
  };
  return {.name = name,
          .ln_1 = {builder, name + ".ln_1", width, kGpt2Epsilon},
          .attention = self_attention(),
          .ln_2 = {builder, name + ".ln_2", width, kGpt2Epsilon},
          .mlp_in = conv1d(builder, name + ".mlp.c_fc", width, 4 * width, kDeviation),
          .mlp_out = conv1d(builder, name + ".mlp.c_proj", 4 * width, width, of_branch),
          .gelu = GeluForm::tanh,
          .dropout = options.dropout};
}

class FinalNorm : public Unit {
 public:
  FinalNorm(Builder& builder, int64_t width)
      : ln_(builder, "transformer.ln_f", width, kGpt2Epsilon), operations_(builder.operations()) {}
  std::string name() const override { return "transformer.ln_f"; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext&) override {
    return operations_->layer_norm->layer_norm(input, ln_);
  }
  SampleShape shape_after(const SampleShape& input, double&) const override { return input; }

 private:
  LayerNorm ln_;
  std::shared_ptr<const Operations> operations_;
};

/// The logits, or their loss.
class LanguageHead : public Unit {
 public:
  explicit LanguageHead(Builder& builder)
      : weight_(builder.shared(kTokens)), copy_(builder.copy_of(kTokens)), operations_(builder.operations()) {}
  std::string name() const override { return "lm_head"; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    const at::Tensor weight = as_autocast(weight_, copy_);
    if (context.target.defined()) return operations_->language_head->loss(input, weight, context.target);
    return at::linear(input, weight);
  }
  SampleShape shape_after(const SampleShape& input, double& flops) const override {
    flops += 2.0 * static_cast<double>(input[0]) * static_cast<double>(weight_.numel());
    return {input[0], weight_.size(0)};
  }

 private:
  at::Tensor weight_;
  WeightCopy copy_;
  std::shared_ptr<const Operations> operations_;
};

std::optional<std::string> gpt2_name_of_file(const std::string& name) {
  constexpr std::string_view kPrefix = "transformer.";
  if (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")) return std::nullopt;  // causal masks
  if (name == "lm_head.weight") return kTokens;
  return name.starts_with(kPrefix) ? name : std::string(kPrefix) + name;
}

}  // namespace

void build_gpt2(Builder& builder, const ModelConfig& config, const InputShape&) {
  const Options options{transformer_size(config), config.context, config.vocabulary, config.dropout};
  builder.add<TokenEmbedding>(options);
  for (int64_t layer = 0; layer < options.layers; ++layer)
    builder.add<TransformerBlock>(decoder_block(builder, fmt::format("transformer.h.{}", layer), options));
  builder.add<FinalNorm>(options.width);
  builder.add<LanguageHead>();
  builder.names_in_files(gpt2_name_of_file);
}

}  // namespace trainopt
