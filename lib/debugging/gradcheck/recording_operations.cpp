#include "debugging/gradcheck/recording_operations.h"

#include "device/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace trainopt::gradcheck {
namespace {

at::Tensor shaped(const at::Tensor& like, std::vector<int64_t> sample) {
  sample.insert(sample.begin(), like.size(0));
  return at::empty(sample, like.options());
}

const ForwardContext kTraining{.training = true};

class RecordingConvolution : public ConvolutionOperations {
 public:
  explicit RecordingConvolution(RecordedCases* cases) : cases_(cases) {}
  at::Tensor forward(const Conv2d::Shape& shape, const at::Tensor& input, const at::Tensor& weight) const override {
    const auto size = [&](int64_t in) { return (in + 2 * shape.padding - shape.kernel) / shape.stride + 1; };
    at::Tensor output = shaped(input, {shape.out, size(input.size(2)), size(input.size(3))});
    if (!cases_) return output;
    GradientCase found;
    found.operation = shape.stride == 1 ? "convolution" : fmt::format("convolution with stride {}", shape.stride);
    if (shape.groups > 1) found.operation += fmt::format(" in {} groups", shape.groups);
    found.inputs = {of_samples("input", input), of_parameter("weight", weight)};
    found.output_values = output.numel() / output.size(0);
    found.fixed_terms = std::max(shape.in, shape.out) / shape.groups * shape.kernel * shape.kernel;
    found.terms_per_sample = output.size(2) * output.size(3);
    found.compute = [shape](const Parts& parts, const Tensors& x) {
      return parts.operations.convolution->forward(shape, x[0], x[1]);
    };
    cases_->add(std::move(found), weight);
    return output;
  }

 private:
  RecordedCases* cases_;
};

BatchNorm2d norm_of(const at::Tensor& weight, const at::Tensor& bias) {
  Builder shapes(at::kMeta, 0);
  BatchNorm2d norm(shapes, "norm", weight.numel());
  norm.weight = weight;
  norm.bias = bias;
  norm.running_mean = at::zeros_like(weight.detach());
  norm.running_var = at::ones_like(weight.detach());
  norm.num_batches_tracked = at::zeros({}, weight.options().dtype(at::kLong).requires_grad(false));
  return norm;
}

/// Inputs: input, weight, bias and, if there is one, the residual.
at::Tensor before_relu(const Tensors& x) {
  const at::Tensor normalized = PlainBatchNormOperations().batch_norm(x[0], norm_of(x[1], x[2]), kTraining);
  return x.size() > 3 ? normalized + x[3] : normalized;
}

/// A window's maximum changes its place where its two largest values are equal, and its slope at zero.
at::Tensor distance_in_windows(const Tensors& x) {
  constexpr double kOutside = -std::numeric_limits<double>::infinity();
  const at::Tensor windows =
      at::constant_pad_nd(before_relu(x), {1, 1, 1, 1}, kOutside).unfold(2, 3, 2).unfold(3, 3, 2);
  const at::Tensor best = std::get<0>(windows.flatten(4).topk(2));
  return at::minimum(best.select(-1, 0).abs(), best.select(-1, 0) - best.select(-1, 1));
}

class RecordingBatchNorm : public BatchNormOperations {
 public:
  explicit RecordingBatchNorm(RecordedCases* cases) : cases_(cases) {}

  at::Tensor batch_norm(const at::Tensor& input, const BatchNorm2d& norm, const ForwardContext&) const override {
    return record("batch_norm", input, norm, {}, input,
                  [](const BatchNormOperations& operations, const BatchNorm2d& n, const Tensors& x) {
                    return operations.batch_norm(x[0], n, kTraining);
                  });
  }
  at::Tensor batch_norm_relu(const at::Tensor& input, const BatchNorm2d& norm, const ForwardContext&) const override {
    return record(
        "batch_norm_relu", input, norm, {}, input,
        [](const BatchNormOperations& operations, const BatchNorm2d& n, const Tensors& x) {
          return operations.batch_norm_relu(x[0], n, kTraining);
        },
        [](const Tensors& x) { return before_relu(x).abs(); });
  }
  at::Tensor batch_norm_add_relu(const at::Tensor& input, const BatchNorm2d& norm, const at::Tensor& residual,
                                 const ForwardContext&) const override {
    return record(
        "batch_norm_add_relu", input, norm, residual, input,
        [](const BatchNormOperations& operations, const BatchNorm2d& n, const Tensors& x) {
          return operations.batch_norm_add_relu(x[0], n, x[3], kTraining);
        },
        [](const Tensors& x) { return before_relu(x).abs(); });
  }
  at::Tensor stem_pool(const at::Tensor& input, const BatchNorm2d& norm, const ForwardContext&) const override {
    return record(
        "stem_pool", input, norm, {}, shaped(input, {input.size(1), (input.size(2) + 1) / 2, (input.size(3) + 1) / 2}),
        [](const BatchNormOperations& operations, const BatchNorm2d& n, const Tensors& x) {
          return operations.stem_pool(x[0], n, kTraining);
        },
        distance_in_windows);
  }

 private:
  using Call = at::Tensor (*)(const BatchNormOperations&, const BatchNorm2d&, const Tensors&);

  at::Tensor record(const char* operation, const at::Tensor& input, const BatchNorm2d& norm, const at::Tensor& residual,
                    const at::Tensor& output, Call call,
                    std::function<at::Tensor(const Tensors&)> distance_to_kink = {}) const {
    if (!cases_) return output;
    GradientCase found;
    found.operation = operation;
    found.inputs = {of_samples("input", input), of_parameter("weight", norm.weight), of_parameter("bias", norm.bias)};
    if (residual.defined()) found.inputs.push_back(of_samples("residual", residual));
    found.output_values = output.numel() / output.size(0);
    found.terms_per_sample = input.size(2) * input.size(3);
    found.over_ranks = cases_->over_ranks();
    found.compute = [call](const Parts& parts, const Tensors& x) {
      return call(*parts.operations.batch_norm, norm_of(x[1], x[2]), x);
    };
    found.distance_to_kink = std::move(distance_to_kink);
    cases_->add(std::move(found), norm.weight);
    return output;
  }

  RecordedCases* cases_;
};

class RecordingHead : public HeadOperations {
 public:
  explicit RecordingHead(RecordedCases* cases) : cases_(cases) {}
  at::Tensor head(const at::Tensor& input, const Linear& linear, const ForwardContext&) const override {
    const int64_t features = linear.weight.size(1), classes = linear.weight.size(0);
    const at::Tensor output = linear.forward(shaped(input, {features}));
    if (!cases_) return output;
    GradientCase found;
    found.operation = "head";
    found.inputs = {of_samples("input", input), of_parameter("weight", linear.weight),
                    of_parameter("bias", linear.bias)};
    found.output_values = classes;
    found.fixed_terms = std::max({features, classes, input.size(2) * input.size(3)});
    found.compute = [features, classes](const Parts& parts, const Tensors& x) {
      Builder shapes(at::kMeta, 0);
      Linear given(shapes, "linear", features, classes);
      given.weight = x[1];
      given.bias = x[2];
      return parts.operations.head->head(x[0], given, kTraining);
    };
    cases_->add(std::move(found), linear.weight);
    return output;
  }

 private:
  RecordedCases* cases_;
};

class RecordingLinear : public LinearOperations {
 public:
  explicit RecordingLinear(RecordedCases* cases) : cases_(cases) {}
  at::Tensor linear(const at::Tensor& input, const LinearTensors& layer) const override {
    const int64_t in = layer.weight.size(1), out = layer.weight.size(0);
    std::vector<int64_t> sizes = input.sizes().vec();
    sizes.back() = out;
    at::Tensor output = at::empty(sizes, input.options());
    if (!cases_) return output;
    GradientCase found;
    found.operation = "linear";
    found.inputs = {of_samples("input", input), of_parameter("weight", layer.weight)};
    if (layer.bias.defined()) found.inputs.push_back(of_parameter("bias", layer.bias));
    found.output_values = output.numel() / output.size(0);
    found.fixed_terms = std::max(in, out);
    found.terms_per_sample = found.output_values / out;
    found.compute = [](const Parts& parts, const Tensors& x) {
      return parts.operations.linear->linear(
          x[0], {.weight = x[1], .bias = x.size() > 2 ? x[2] : at::Tensor(), .parameter = x[1]});
    };
    found.rounds_to = [](const Parts& parts) { return parts.operations.linear->rounds_to(); };
    cases_->add(std::move(found), layer.parameter);
    return output;
  }

 private:
  RecordedCases* cases_;
};

class AnnouncedUnit : public WrappedUnit {
 public:
  AnnouncedUnit(std::unique_ptr<Unit> inner, RecordedCases& cases) : WrappedUnit(std::move(inner)), cases_(cases) {}
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    cases_.begin_unit(name());
    return inner_->forward(input, context);
  }

 private:
  RecordedCases& cases_;
};

}  // namespace

RecordedCases::RecordedCases(const Model& model, bool over_ranks) : over_ranks_(over_ranks) {
  for (const auto& [name, tensor] : model.parameters())
    layers_[tensor.unsafeGetTensorImpl()] = name.substr(0, name.rfind('.'));
}

void RecordedCases::add(GradientCase found, const at::Tensor& weight) {
  found.layer = weight.defined() ? layers_.at(weight.unsafeGetTensorImpl()) : unit_;
  const auto same = std::find_if(all_.begin(), all_.end(), [&](const GradientCase& known) {
    return known.operation == found.operation &&
           std::equal(known.inputs.begin(), known.inputs.end(), found.inputs.begin(), found.inputs.end(),
                      [](const CaseInput& a, const CaseInput& b) { return a.sizes == b.sizes; });
  });
  if (same == all_.end())
    all_.push_back(std::move(found));
  else
    ++same->calls;
}

std::shared_ptr<const ConvolutionOperations> recording_convolution(RecordedCases* cases) {
  return std::make_shared<RecordingConvolution>(cases);
}
std::shared_ptr<const BatchNormOperations> recording_batch_norm(RecordedCases* cases) {
  return std::make_shared<RecordingBatchNorm>(cases);
}
std::shared_ptr<const HeadOperations> recording_head(RecordedCases* cases) {
  return std::make_shared<RecordingHead>(cases);
}
std::shared_ptr<const LinearOperations> recording_linear(RecordedCases* cases) {
  return std::make_shared<RecordingLinear>(cases);
}
std::unique_ptr<Unit> announced(std::unique_ptr<Unit> unit, RecordedCases& cases) {
  return std::make_unique<AnnouncedUnit>(std::move(unit), cases);
}

// The operations of transformers.

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
