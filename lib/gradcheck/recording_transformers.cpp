// The operations of transformers.
#include "gradcheck/recording_operations.h"

#include "device/tensor.h"

#include <algorithm>
#include <cmath>

namespace trainopt::gradcheck {
namespace {

at::Tensor like(const at::Tensor& input) { return at::empty(input.sizes(), input.options()); }

class RecordingAttention : public AttentionOperations {
 public:
  explicit RecordingAttention(RecordedCases* cases) : cases_(cases) {}
  at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const AttentionOptions& options, const ForwardContext&) const override {
    if (!cases_) return like(query);
    GradientCase found;
    found.operation = options.causal ? "causal_attention" : "attention";
    found.inputs = {of_samples("query", query), of_samples("key", key), of_samples("value", value)};
    found.output_values = query.numel() / query.size(0);
    found.fixed_terms = std::max(query.size(3), key.size(2));
    found.compute = [causal = options.causal](const Parts& parts, const Tensors& x) {
      return parts.operations.attention->attention(x[0], x[1], x[2], {.causal = causal}, {});
    };
    cases_->add(std::move(found), {});
    return like(query);
  }

 private:
  RecordedCases* cases_;
};

LayerNorm norm_of(const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  Builder shapes(at::kMeta, 0);
  LayerNorm norm(shapes, "norm", weight.numel(), epsilon);
  norm.weight = weight;
  norm.bias = bias;
  return norm;
}

class RecordingLayerNorm : public LayerNormOperations {
 public:
  explicit RecordingLayerNorm(RecordedCases* cases) : cases_(cases) {}

  at::Tensor layer_norm(const at::Tensor& input, const LayerNorm& norm) const override {
    if (cases_)
      record("layer_norm", input, norm, [epsilon = norm.epsilon](const Parts& parts, const Tensors& x) {
        return parts.operations.layer_norm->layer_norm(x[0], norm_of(x[1], x[2], epsilon));
      });
    return like(input);
  }
  NormalisedSum add_layer_norm(const at::Tensor& residual, const at::Tensor& branch,
                               const LayerNorm& norm) const override {
    if (cases_)
      record(
          "add_layer_norm", residual, norm,
          [epsilon = norm.epsilon](const Parts& parts, const Tensors& x) {
            const auto [sum, normalised] =
                parts.operations.layer_norm->add_layer_norm(x[0], x[3], norm_of(x[1], x[2], epsilon));
            return at::cat({sum, normalised.to(sum.scalar_type())}, -1);
          },
          branch);
    return {like(residual), like(residual)};
  }

 private:
  void record(const char* operation, const at::Tensor& input, const LayerNorm& norm,
              std::function<at::Tensor(const Parts&, const Tensors&)> compute, const at::Tensor& branch = {}) const {
    GradientCase found;
    found.operation = operation;
    found.inputs = {of_samples("input", input), of_parameter("weight", norm.weight), of_parameter("bias", norm.bias)};
    if (branch.defined()) found.inputs.push_back(of_samples("branch", branch));
    found.output_values = (branch.defined() ? 2 : 1) * input.numel() / input.size(0);
    found.fixed_terms = norm.weight.numel();
    found.terms_per_sample = found.output_values / norm.weight.numel();
    found.compute = std::move(compute);
    cases_->add(std::move(found), norm.weight);
  }

  RecordedCases* cases_;
};

Linear linear_of(const at::Tensor& weight, const at::Tensor& bias) {
  Builder shapes(at::kMeta, 0);
  Linear linear(shapes, "linear", weight.size(1), weight.size(0));
  linear.weight = weight;
  linear.bias = bias;
  return linear;
}

class RecordingGelu : public GeluOperations {
 public:
  explicit RecordingGelu(RecordedCases* cases) : cases_(cases) {}
  at::Tensor linear_gelu(const at::Tensor& input, const Linear& linear, GeluForm form) const override {
    at::Tensor output = linear.product(input);
    if (!cases_) return output;
    GradientCase found;
    found.operation = form == GeluForm::tanh ? "linear_gelu_tanh" : "linear_gelu";
    found.inputs = {of_samples("input", input), of_parameter("weight", linear.weight),
                    of_parameter("bias", linear.bias)};
    found.output_values = output.numel() / output.size(0);
    found.fixed_terms = std::max(linear.weight.size(0), linear.weight.size(1));
    found.terms_per_sample = found.output_values / linear.weight.size(0);
    found.compute = [form](const Parts& parts, const Tensors& x) {
      return parts.operations.gelu->linear_gelu(x[0], linear_of(x[1], x[2]), form);
    };
    cases_->add(std::move(found), linear.weight);
    return output;
  }

 private:
  RecordedCases* cases_;
};

class RecordingLanguageHead : public LanguageHeadOperations {
 public:
  explicit RecordingLanguageHead(RecordedCases* cases) : cases_(cases) {}
  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor&) const override {
    at::Tensor output = at::empty({}, hidden.options().dtype(at::kFloat));
    if (!cases_) return output;
    GradientCase found;
    found.operation = "linear_cross_entropy";
    found.inputs = {of_samples("hidden", hidden), of_parameter("weight", weight)};
    found.output_values = 1;
    found.fixed_terms = std::max(weight.size(0), weight.size(1));
    found.terms_per_sample = hidden.size(1);
    found.compute = [](const Parts& parts, const Tensors& x) {
      const auto targets = x[0].options().dtype(at::kLong).requires_grad(false);
      const int64_t predicted = x[0].size(0) * x[0].size(1);
      const at::Tensor target = (at::arange(predicted, targets) % x[1].size(0)).view({x[0].size(0), x[0].size(1)});
      // Logits below 1, since softmax turns the rounding of a logit into a relative error. The sum, since float16 could
      // not hold the gradients of the mean.
      const at::Tensor small_weight = x[1] / (4 * std::sqrt(static_cast<double>(x[1].size(1))));
      return parts.operations.language_head->loss(x[0], small_weight, target) * predicted;
    };
    cases_->add(std::move(found), weight);
    return output;
  }

 private:
  RecordedCases* cases_;
};

}  // namespace

std::shared_ptr<const AttentionOperations> recording_attention(RecordedCases* cases) {
  return std::make_shared<RecordingAttention>(cases);
}
std::shared_ptr<const LayerNormOperations> recording_layer_norm(RecordedCases* cases) {
  return std::make_shared<RecordingLayerNorm>(cases);
}
std::shared_ptr<const GeluOperations> recording_gelu(RecordedCases* cases) {
  return std::make_shared<RecordingGelu>(cases);
}
std::shared_ptr<const LanguageHeadOperations> recording_language_head(RecordedCases* cases) {
  return std::make_shared<RecordingLanguageHead>(cases);
}

}  // namespace trainopt::gradcheck
