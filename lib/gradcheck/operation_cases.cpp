#include "gradcheck/operation_cases.h"

#include "device/tensor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>

namespace trainopt::gradcheck {
namespace {

/// The cases of one forward, and the names of the model's layers.
class Cases {
 public:
  Cases(const Model& model, bool sync_batch_norm) : over_ranks_(sync_batch_norm) {
    for (const auto& [name, tensor] : model.parameters())
      layers_[tensor.unsafeGetTensorImpl()] = name.substr(0, name.rfind('.'));
  }

  void add(GradientCase found, const at::Tensor& weight) {
    found.layer = layers_.at(weight.unsafeGetTensorImpl());
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

  bool over_ranks() const { return over_ranks_; }
  std::vector<GradientCase> take() { return std::move(all_); }

 private:
  bool over_ranks_;
  std::map<const c10::TensorImpl*, std::string> layers_;
  std::vector<GradientCase> all_;
};

CaseInput sample(const char* name, const at::Tensor& tensor) { return {name, tensor.sizes().vec(), true}; }
CaseInput parameter(const char* name, const at::Tensor& tensor) { return {name, tensor.sizes().vec(), false}; }

at::Tensor shaped(const at::Tensor& like, std::vector<int64_t> sample) {
  sample.insert(sample.begin(), like.size(0));
  return at::empty(sample, like.options());
}

constexpr ForwardContext kTraining{.training = true};

// The classes below take the place of a model's operations on the meta device: they record the call and return a
// tensor of the right shape. Without `cases` they do not record.

class RecordingConvolution : public ConvolutionOperations {
 public:
  explicit RecordingConvolution(Cases* cases) : cases_(cases) {}
  at::Tensor forward(const Conv2d::Shape& shape, const at::Tensor& input, const at::Tensor& weight) const override {
    const auto size = [&](int64_t in) { return (in + 2 * shape.padding - shape.kernel) / shape.stride + 1; };
    at::Tensor output = shaped(input, {shape.out, size(input.size(2)), size(input.size(3))});
    if (!cases_) return output;
    GradientCase found;
    found.operation = shape.stride == 1 ? "convolution" : fmt::format("convolution with stride {}", shape.stride);
    found.inputs = {sample("input", input), parameter("weight", weight)};
    found.output_values = output.numel() / output.size(0);
    found.fixed_terms = std::max(shape.in, shape.out) * shape.kernel * shape.kernel;
    found.terms_per_sample = output.size(2) * output.size(3);
    found.compute = [shape](const Parts& parts, const Tensors& x) {
      return parts.operations.convolution->forward(shape, x[0], x[1]);
    };
    cases_->add(std::move(found), weight);
    return output;
  }

 private:
  Cases* cases_;
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
  explicit RecordingBatchNorm(Cases* cases) : cases_(cases) {}

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
    found.inputs = {sample("input", input), parameter("weight", norm.weight), parameter("bias", norm.bias)};
    if (residual.defined()) found.inputs.push_back(sample("residual", residual));
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

  Cases* cases_;
};

class RecordingHead : public HeadOperations {
 public:
  explicit RecordingHead(Cases* cases) : cases_(cases) {}
  at::Tensor head(const at::Tensor& input, const Linear& linear, const ForwardContext&) const override {
    const int64_t features = linear.weight.size(1), classes = linear.weight.size(0);
    if (!cases_) return shaped(input, {classes});
    GradientCase found;
    found.operation = "head";
    found.inputs = {sample("input", input), parameter("weight", linear.weight), parameter("bias", linear.bias)};
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
    return shaped(input, {classes});
  }

 private:
  Cases* cases_;
};

/// A network whose output is its input: the loss alone.
class Unchanged : public Unit {
 public:
  explicit Unchanged(Builder&) {}
  std::string name() const override { return "unchanged"; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext&) override { return input; }
  SampleShape trace(const SampleShape& input, double&) const override { return input; }
};

GradientCase loss_case(int64_t batch, int64_t classes) {
  GradientCase found;
  found.operation = found.layer = "loss";
  found.inputs = {{"outputs", {batch, classes}, true}};
  found.output_values = 1;
  found.fixed_terms = classes;
  found.compute = [classes](const Parts& parts, const Tensors& x) {
    Builder builder(x[0].device(), 0);
    builder.add<Unchanged>();
    Model unchanged(std::move(builder), {classes});
    const int64_t samples = x[0].size(0);
    const at::Tensor target = at::arange(samples, x[0].options().dtype(at::kLong).requires_grad(false)) % classes;
    // The sum over the batch: float16 could not hold the gradients of the mean.
    return parts.task->loss(unchanged, x[0], target, kTraining).loss * samples;
  };
  return found;
}

/// One case stands for all copies, because they differ only in their sizes.
std::vector<GradientCase> copy_cases(Model& model, at::ScalarType type) {
  GradientCase found;
  found.operation = "weight_copy";
  found.calls = 0;
  const auto copies = model.weight_copies();
  const NamedTensors parameters = model.parameters();
  for (size_t i = 0; i < copies.size(); ++i)
    if (copies[i] && copies[i]->defined() && found.calls++ == 0) {
      found.layer = parameters[i].first.substr(0, parameters[i].first.rfind('.'));
      found.inputs = {parameter("parameter", *copies[i])};
    }
  if (found.calls == 0) return {};
  found.output_values = c10::multiply_integers(found.inputs[0].sizes);
  found.compute = [type](const Parts&, const Tensors& x) {
    return as_autocast(x[0], std::make_shared<at::Tensor>(x[0].detach().to(type)));
  };
  return {found};
}

}  // namespace

std::vector<GradientCase> operation_cases(const CheckedSlots& slots, const BuildContext& context) {
  const at::NoGradGuard no_grad;
  const Plan& plan = context.plan;
  ModelConfig config = plan.model.config;
  config.weights.reset();
  Model model = make_model(config, plan.model.input, at::kMeta, 0);
  Cases cases(model, plan.parallel.sync_batch_norm);
  const auto unless_plain = [&](const auto& slot) { return slot.is_plain() ? nullptr : &cases; };
  model.set_operations({.convolution = std::make_shared<RecordingConvolution>(unless_plain(slots.convolution)),
                        .batch_norm = std::make_shared<RecordingBatchNorm>(unless_plain(slots.batch_norm)),
                        .head = std::make_shared<RecordingHead>(unless_plain(slots.head))});
  const InputShape& image = plan.model.input;
  const int64_t batch = plan.data.batch_size;
  // Not in training: dropout, which has no backward of its own, would draw random numbers.
  model.forward(at::empty({batch, image.channels, image.height, image.width}, at::TensorOptions(at::kMeta)), {});
  std::vector<GradientCase> all = cases.take();
  if (!slots.task.is_plain()) all.push_back(loss_case(batch, model.output_shape().front()));
  for (auto& copies : copy_cases(*context.model, plan.tensor_format.compute_type)) all.push_back(std::move(copies));
  return all;
}

}  // namespace trainopt::gradcheck
