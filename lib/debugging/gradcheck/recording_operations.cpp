#include "debugging/gradcheck/recording_operations.h"

#include "device/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace trainopt::gradcheck {
namespace {

const ForwardContext kTraining{.training = true};

CaseInput of_samples(const char* name, const at::Tensor& tensor) { return {name, tensor.sizes().vec(), true}; }
CaseInput of_parameter(const char* name, const at::Tensor& tensor) { return {name, tensor.sizes().vec(), false}; }

// Layers whose parameters are a case's inputs.

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

LayerNorm norm_of(const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  Builder shapes(at::kMeta, 0);
  LayerNorm norm(shapes, "norm", weight.numel(), epsilon);
  norm.weight = weight;
  norm.bias = bias;
  return norm;
}

/// A view if the program has the weight transposed.
at::Tensor out_by_in(const Linear& linear) { return linear.transposed ? linear.weight.t() : linear.weight; }
Linear linear_of(const at::Tensor& weight, const at::Tensor& bias) {
  Builder shapes(at::kMeta, 0);
  Linear linear(shapes, "linear", weight.size(1), weight.size(0));
  linear.weight = weight;
  linear.bias = bias;
  return linear;
}

// How far values are from a kink.

/// Inputs: input, weight, bias and, if there is one, the residual.
at::Tensor before_relu(const Tensors& x) {
  const at::Tensor normalized = PlainBatchNormOperations().batch_norm(x[0], norm_of(x[1], x[2]), kTraining);
  return x.size() > 3 ? normalized + x[3] : normalized;
}

at::Tensor distance_of_relu(const Tensors& x) { return before_relu(x).abs(); }

/// A window's maximum changes its place where its two largest values are equal, and its slope at zero.
at::Tensor distance_in_windows(const Tensors& x) {
  constexpr double kOutside = -std::numeric_limits<double>::infinity();
  const at::Tensor windows =
      at::constant_pad_nd(before_relu(x), {1, 1, 1, 1}, kOutside).unfold(2, 3, 2).unfold(3, 3, 2);
  const at::Tensor best = std::get<0>(windows.flatten(4).topk(2));
  return at::minimum(best.select(-1, 0).abs(), best.select(-1, 0) - best.select(-1, 1));
}

class RecordingOperations : public ForwardingOperations {
 public:
  RecordingOperations(RecordedCases& cases, const OperationSlots& slots) : cases_(cases), slots_(slots) {}

  at::Tensor forward(const Conv2d::Shape& shape, const at::Tensor& input, const at::Tensor& weight) const override {
    at::Tensor output = ForwardingOperations::forward(shape, input, weight);
    if (slots_.convolution.is_plain()) return output;
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
    cases_.add(std::move(found), weight);
    return output;
  }

  at::Tensor batch_norm(const at::Tensor& input, const BatchNorm2d& norm,
                        const ForwardContext& context) const override {
    at::Tensor output = ForwardingOperations::batch_norm(input, norm, context);
    const auto compute = [](const BatchNormOperations& operations, const BatchNorm2d& n, const Tensors& x) {
      return operations.batch_norm(x[0], n, kTraining);
    };
    record_batch_norm("batch_norm", input, norm, {}, output, compute, {});
    return output;
  }
  at::Tensor batch_norm_relu(const at::Tensor& input, const BatchNorm2d& norm,
                             const ForwardContext& context) const override {
    at::Tensor output = ForwardingOperations::batch_norm_relu(input, norm, context);
    const auto compute = [](const BatchNormOperations& operations, const BatchNorm2d& n, const Tensors& x) {
      return operations.batch_norm_relu(x[0], n, kTraining);
    };
    record_batch_norm("batch_norm_relu", input, norm, {}, output, compute, distance_of_relu);
    return output;
  }
  at::Tensor batch_norm_add_relu(const at::Tensor& input, const BatchNorm2d& norm, const at::Tensor& residual,
                                 const ForwardContext& context) const override {
    at::Tensor output = ForwardingOperations::batch_norm_add_relu(input, norm, residual, context);
    const auto compute = [](const BatchNormOperations& operations, const BatchNorm2d& n, const Tensors& x) {
      return operations.batch_norm_add_relu(x[0], n, x[3], kTraining);
    };
    record_batch_norm("batch_norm_add_relu", input, norm, residual, output, compute, distance_of_relu);
    return output;
  }
  at::Tensor stem_pool(const at::Tensor& input, const BatchNorm2d& norm, const ForwardContext& context) const override {
    at::Tensor output = ForwardingOperations::stem_pool(input, norm, context);
    const auto compute = [](const BatchNormOperations& operations, const BatchNorm2d& n, const Tensors& x) {
      return operations.stem_pool(x[0], n, kTraining);
    };
    record_batch_norm("stem_pool", input, norm, {}, output, compute, distance_in_windows);
    return output;
  }

  at::Tensor head(const at::Tensor& input, const Linear& linear, const ForwardContext& context) const override {
    at::Tensor output = ForwardingOperations::head(input, linear, context);
    if (slots_.head.is_plain()) return output;
    GradientCase found;
    found.operation = "head";
    found.inputs = {of_samples("input", input), of_parameter("weight", out_by_in(linear)),
                    of_parameter("bias", linear.bias)};
    found.output_values = out_by_in(linear).size(0);
    found.fixed_terms = std::max({out_by_in(linear).size(0), out_by_in(linear).size(1), input.size(2) * input.size(3)});
    found.compute = [](const Parts& parts, const Tensors& x) {
      return parts.operations.head->head(x[0], linear_of(x[1], x[2]), kTraining);
    };
    cases_.add(std::move(found), linear.weight);
    return output;
  }

  at::Tensor linear(const at::Tensor& input, const LinearTensors& layer) const override {
    at::Tensor output = ForwardingOperations::linear(input, layer);
    if (slots_.linear.is_plain()) return output;
    GradientCase found;
    found.operation = "linear";
    found.inputs = {of_samples("input", input), of_parameter("weight", layer.weight)};
    if (layer.bias.defined()) found.inputs.push_back(of_parameter("bias", layer.bias));
    found.output_values = output.numel() / output.size(0);
    found.fixed_terms = std::max(layer.weight.size(0), layer.weight.size(1));
    found.terms_per_sample = found.output_values / layer.weight.size(0);
    found.compute = [](const Parts& parts, const Tensors& x) {
      return parts.operations.linear->linear(
          x[0], {.weight = x[1], .bias = x.size() > 2 ? x[2] : at::Tensor(), .parameter = x[1]});
    };
    found.rounds_to = [](const Parts& parts) { return parts.operations.linear->rounds_to(); };
    cases_.add(std::move(found), layer.parameter);
    return output;
  }

  at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const AttentionOptions& options, const ForwardContext& context) const override {
    at::Tensor output = ForwardingOperations::attention(query, key, value, options, context);
    if (slots_.attention.is_plain()) return output;
    GradientCase found;
    found.operation = options.causal ? "causal_attention" : "attention";
    found.inputs = {of_samples("query", query), of_samples("key", key), of_samples("value", value)};
    found.output_values = query.numel() / query.size(0);
    found.fixed_terms = std::max(query.size(3), key.size(2));
    found.compute = [causal = options.causal](const Parts& parts, const Tensors& x) {
      return parts.operations.attention->attention(x[0], x[1], x[2], {.causal = causal}, {});
    };
    cases_.add(std::move(found), {});
    return output;
  }

  at::Tensor layer_norm(const at::Tensor& input, const LayerNorm& norm) const override {
    const auto compute = [epsilon = norm.epsilon](const Parts& parts, const Tensors& x) {
      return parts.operations.layer_norm->layer_norm(x[0], norm_of(x[1], x[2], epsilon));
    };
    record_layer_norm("layer_norm", input, norm, {}, compute);
    return ForwardingOperations::layer_norm(input, norm);
  }
  NormalisedSum add_layer_norm(const at::Tensor& residual, const at::Tensor& branch,
                               const LayerNorm& norm) const override {
    const auto compute = [epsilon = norm.epsilon](const Parts& parts, const Tensors& x) {
      const auto [sum, normalised] =
          parts.operations.layer_norm->add_layer_norm(x[0], x[3], norm_of(x[1], x[2], epsilon));
      return at::cat({sum, normalised.to(sum.scalar_type())}, -1);
    };
    record_layer_norm("add_layer_norm", residual, norm, branch, compute);
    return ForwardingOperations::add_layer_norm(residual, branch, norm);
  }

  at::Tensor linear_gelu(const at::Tensor& input, const Linear& linear, GeluForm form) const override {
    if (slots_.gelu.is_plain()) return ForwardingOperations::linear_gelu(input, linear, form);
    // Our implementations add the bias themselves, so the product is a case without it.
    at::Tensor output = linear.product(input);
    GradientCase found;
    found.operation = form == GeluForm::tanh ? "linear_gelu_tanh" : "linear_gelu";
    found.inputs = {of_samples("input", input), of_parameter("weight", out_by_in(linear)),
                    of_parameter("bias", linear.bias)};
    found.output_values = output.numel() / output.size(0);
    found.fixed_terms = std::max(out_by_in(linear).size(0), out_by_in(linear).size(1));
    found.terms_per_sample = found.output_values / out_by_in(linear).size(0);
    found.compute = [form](const Parts& parts, const Tensors& x) {
      return parts.operations.gelu->linear_gelu(x[0], linear_of(x[1], x[2]), form);
    };
    cases_.add(std::move(found), linear.weight);
    return output;
  }

  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& target) const override {
    if (!slots_.language_head.is_plain()) {
      GradientCase found;
      found.operation = "linear_cross_entropy";
      found.inputs = {of_samples("hidden", hidden), of_parameter("weight", weight)};
      found.output_values = 1;
      found.fixed_terms = std::max(weight.size(0), weight.size(1));
      found.terms_per_sample = hidden.size(1);
      found.compute = [](const Parts& parts, const Tensors& x) {
        const auto targets = x[0].options().dtype(at::kLong).requires_grad(false);
        const int64_t predicted = x[0].size(0) * x[0].size(1);
        const at::Tensor each = (at::arange(predicted, targets) % x[1].size(0)).view({x[0].size(0), x[0].size(1)});
        // Logits below 1, since softmax turns the rounding of a logit into a relative error. The sum, since float16
        // could not hold the gradients of the mean.
        const at::Tensor small_weight = x[1] / (4 * std::sqrt(static_cast<double>(x[1].size(1))));
        return parts.operations.language_head->loss(x[0], small_weight, each) * predicted;
      };
      cases_.add(std::move(found), weight);
    }
    return ForwardingOperations::loss(hidden, weight, target);
  }

 private:
  using BatchNormCall = at::Tensor (*)(const BatchNormOperations&, const BatchNorm2d&, const Tensors&);

  void record_batch_norm(const char* operation, const at::Tensor& input, const BatchNorm2d& norm,
                         const at::Tensor& residual, const at::Tensor& output, BatchNormCall call,
                         std::function<at::Tensor(const Tensors&)> distance_to_kink) const {
    if (slots_.batch_norm.is_plain()) return;
    GradientCase found;
    found.operation = operation;
    found.inputs = {of_samples("input", input), of_parameter("weight", norm.weight), of_parameter("bias", norm.bias)};
    if (residual.defined()) found.inputs.push_back(of_samples("residual", residual));
    found.output_values = output.numel() / output.size(0);
    found.terms_per_sample = input.size(2) * input.size(3);
    found.over_ranks = cases_.over_ranks();
    found.compute = [call](const Parts& parts, const Tensors& x) {
      return call(*parts.operations.batch_norm, norm_of(x[1], x[2]), x);
    };
    found.distance_to_kink = std::move(distance_to_kink);
    cases_.add(std::move(found), norm.weight);
  }

  void record_layer_norm(const char* operation, const at::Tensor& input, const LayerNorm& norm,
                         const at::Tensor& branch,
                         std::function<at::Tensor(const Parts&, const Tensors&)> compute) const {
    if (slots_.layer_norm.is_plain()) return;
    GradientCase found;
    found.operation = operation;
    found.inputs = {of_samples("input", input), of_parameter("weight", norm.weight), of_parameter("bias", norm.bias)};
    if (branch.defined()) found.inputs.push_back(of_samples("branch", branch));
    found.output_values = (branch.defined() ? 2 : 1) * input.numel() / input.size(0);
    found.fixed_terms = norm.weight.numel();
    found.terms_per_sample = found.output_values / norm.weight.numel();
    found.compute = std::move(compute);
    cases_.add(std::move(found), norm.weight);
  }

  RecordedCases& cases_;
  const OperationSlots& slots_;
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

void record_operations(Model& model, const OperationSlots& slots, RecordedCases& cases) {
  model.set_operations(all_through(std::make_shared<RecordingOperations>(cases, slots)));
  model.wrap_units([&](std::unique_ptr<Unit> unit) { return std::make_unique<AnnouncedUnit>(std::move(unit), cases); });
}

}  // namespace trainopt::gradcheck
