#include "model/gpt2.h"

#include "base/error.h"
#include "device/tensor.h"
#include "model/dropout.h"
#include "model/self_attention.h"

#include <ATen/ops/embedding.h>

#include <cmath>

namespace trainopt {
namespace {

constexpr double kEpsilon = 1e-5;  // of layer norms
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
    const at::Tensor embedded = at::embedding(tokens_, input) + positions_.narrow(0, 0, input.size(1));
    return dropout(embedded, dropout_rate_, context);
  }
  SampleShape trace(const SampleShape& input, double&) const override { return {input[0], tokens_.size(1)}; }

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

class DecoderBlock : public Unit {
 public:
  DecoderBlock(Builder& builder, std::string name, const Options& options)
      : name_(std::move(name)),
        ln_1_(builder, name_ + ".ln_1", options.width, kEpsilon),
        attention_(self_attention(builder, name_ + ".attn", options)),
        ln_2_(builder, name_ + ".ln_2", options.width, kEpsilon),
        c_fc_(conv1d(builder, name_ + ".mlp.c_fc", options.width, 4 * options.width, kDeviation)),
        c_proj_(conv1d(builder, name_ + ".mlp.c_proj", 4 * options.width, options.width, deviation_of_branch(options))),
        dropout_rate_(options.dropout),
        operations_(builder.operations()) {}

  std::string name() const override { return name_; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    const auto dropped = [&](const at::Tensor& values) { return dropout(values, dropout_rate_, context); };
    const at::Tensor normalised = operations_->layer_norm->layer_norm(input, ln_1_);
    const auto attended =
        operations_->layer_norm->add_layer_norm(input, dropped(attention_.forward(normalised, context)), ln_2_);
    const at::Tensor hidden = operations_->gelu->linear_gelu(attended.normalised, c_fc_, GeluForm::tanh);
    return attended.sum + dropped(c_proj_.forward(hidden));
  }
  SampleShape trace(const SampleShape& input, double& flops) const override {
    return c_proj_.trace(c_fc_.trace(attention_.trace(input, flops), flops), flops);
  }

 private:
  /// Smaller where a result is added to the residual stream: each block adds two.
  static double deviation_of_branch(const Options& options) {
    return kDeviation / std::sqrt(2.0 * static_cast<double>(options.layers));
  }
  static SelfAttention self_attention(Builder& builder, const std::string& name, const Options& options) {
    Linear in = conv1d(builder, name + ".c_attn", options.width, 3 * options.width, kDeviation);
    Linear out = conv1d(builder, name + ".c_proj", options.width, options.width, deviation_of_branch(options));
    return {builder, std::move(in), std::move(out), options.heads, {.causal = true, .dropout = options.dropout}};
  }

  std::string name_;
  LayerNorm ln_1_;
  SelfAttention attention_;
  LayerNorm ln_2_;
  Linear c_fc_, c_proj_;
  double dropout_rate_;
  std::shared_ptr<const Operations> operations_;
};

class FinalNorm : public Unit {
 public:
  FinalNorm(Builder& builder, int64_t width)
      : ln_(builder, "transformer.ln_f", width, kEpsilon), operations_(builder.operations()) {}
  std::string name() const override { return "transformer.ln_f"; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext&) override {
    return operations_->layer_norm->layer_norm(input, ln_);
  }
  SampleShape trace(const SampleShape& input, double&) const override { return input; }

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
  SampleShape trace(const SampleShape& input, double& flops) const override {
    flops += 2.0 * static_cast<double>(input[0]) * static_cast<double>(weight_.numel());
    return {input[0], weight_.size(0)};
  }

 private:
  at::Tensor weight_;
  WeightCopy copy_;
  std::shared_ptr<const Operations> operations_;
};

void adapt_file(FileTensors& tensors) {
  constexpr std::string_view kPrefix = "transformer.", kHead = "lm_head.weight";
  FileTensors adapted;
  for (const auto& [name, tensor] : tensors) {
    if (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")) continue;
    adapted.emplace(name.starts_with(kPrefix) || name == kHead ? name : std::string(kPrefix) + name, tensor);
  }
  const auto head = adapted.find(std::string(kHead)), embedding = adapted.find(kTokens);
  if (head != adapted.end() && embedding != adapted.end() &&
      head->second.scalar_type() == embedding->second.scalar_type() && at::equal(head->second, embedding->second))
    adapted.erase(head);
  tensors = std::move(adapted);
}

}  // namespace

void build_gpt2(Builder& builder, const ModelConfig& config) {
  const Options options{transformer_size(config), config.context, config.vocabulary, config.dropout};
  builder.add<TokenEmbedding>(options);
  for (int64_t layer = 0; layer < options.layers; ++layer)
    builder.add<DecoderBlock>(fmt::format("transformer.h.{}", layer), options);
  builder.add<FinalNorm>(options.width);
  builder.add<LanguageHead>();
  builder.adapt_file_by(adapt_file);
}

}  // namespace trainopt
