#include "roofline/model_products.h"

#include "device/differentiable.h"
#include "device/meta_device.h"
#include "device/tensor.h"
#include "roofline/measure_machine.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace trainopt {
namespace {

using Compute = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

std::string sizes_text(at::IntArrayRef sizes) { return fmt::format("{}", fmt::join(sizes, " × ")); }

double product_of(at::IntArrayRef sizes) { return static_cast<double>(c10::multiply_integers(sizes)); }

/// Measures each shape when it comes for the first time, on tensors of the same shapes with random values.
class Measurer {
 public:
  explicit Measurer(const MeasureProducts& options) : options_(options) {}

  void measure(const std::string& operation, const std::string& shape, double flops,
               const std::vector<at::Tensor>& like, const Compute& compute) const {
    if (options_.stop && *options_.stop != 0) return;
    const auto known = std::find_if(found_.begin(), found_.end(), [&](const ModelProduct& each) {
      return each.operation == operation && each.shape == shape;
    });
    if (known != found_.end()) {
      ++known->calls;
      return;
    }
    ModelProduct product{.operation = operation, .shape = shape, .calls = 1, .flops = flops};
    for (const auto type : options_.types) product.times[type_name(type)] = time(like, type, compute);
    found_.push_back(std::move(product));
  }

  std::vector<ModelProduct> take() { return std::move(found_); }

 private:
  ProductTime time(const std::vector<at::Tensor>& like, c10::ScalarType type, const Compute& compute) const {
    std::vector<at::Tensor> inputs;
    for (const at::Tensor& each : like) {
      at::Tensor input = at::empty(each.sizes(), at::TensorOptions(options_.device).dtype(type)).normal_(0, 0.1);
      if (input.dim() == 4) input = input.contiguous(options_.memory_format);
      inputs.push_back(input.set_requires_grad(true));
    }
    ProductTime times;
    {
      const c10::NoGradGuard no_gradients;
      times.forward_s = shortest_s(options_.device, [&] { compute(inputs); }, {.seconds = options_.seconds});
    }
    const c10::AutoGradMode gradients(true);
    const at::Tensor output = compute(inputs), gradient = at::ones_like(output);
    const auto backward = [&] { gradients_of(output, gradient, inputs, /*keeps_graph=*/true); };
    times.backward_s = shortest_s(options_.device, backward, {.seconds = options_.seconds});
    return times;
  }

  const MeasureProducts& options_;
  mutable std::vector<ModelProduct> found_;
};

class MeasuredOperations : public ForwardingOperations {
 public:
  explicit MeasuredOperations(const Measurer& measurer) : measurer_(measurer) {}

  at::Tensor forward(const Conv2d::Shape& shape, const at::Tensor& input, const at::Tensor& weight) const override {
    at::Tensor output = ForwardingOperations::forward(shape, input, weight);
    const double flops =
        2 * product_of(output.sizes()) * static_cast<double>(shape.in / shape.groups * shape.kernel * shape.kernel);
    measurer_.measure("convolution",
                      fmt::format("{}, {} × {}{} to {} channels{}", sizes_text(input.sizes()), shape.kernel,
                                  shape.kernel, shape.stride == 1 ? "" : fmt::format(" stride {}", shape.stride),
                                  shape.out, shape.groups == 1 ? "" : fmt::format(" in {} groups", shape.groups)),
                      flops, {input, weight}, [&](const std::vector<at::Tensor>& inputs) {
                        return ForwardingOperations::forward(shape, inputs[0], inputs[1]);
                      });
    return output;
  }

  at::Tensor linear(const at::Tensor& input, const LinearTensors& layer) const override {
    measure_linear(input, layer.weight);
    return ForwardingOperations::linear(input, layer);
  }

  at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const AttentionOptions& options, const ForwardContext& context) const override {
    const double flops = 4 * product_of(query.sizes()) * static_cast<double>(key.size(-2));
    const AttentionOptions without_dropout{.causal = options.causal};
    measurer_.measure("attention", fmt::format("{}{}", sizes_text(query.sizes()), options.causal ? ", causal" : ""),
                      flops, {query, key, value}, [&](const std::vector<at::Tensor>& inputs) {
                        return ForwardingOperations::attention(inputs[0], inputs[1], inputs[2], without_dropout,
                                                               context);
                      });
    return ForwardingOperations::attention(query, key, value, without_dropout, context);
  }

  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& target) const override {
    measure_linear(hidden, weight);
    return ForwardingOperations::loss(hidden, weight, target);
  }

 private:
  void measure_linear(const at::Tensor& input, const at::Tensor& weight) const {
    const double flops = 2 * product_of(input.sizes()) * static_cast<double>(weight.size(0));
    measurer_.measure("linear", fmt::format("{} to {}", sizes_text(input.sizes()), weight.size(0)), flops,
                      {input, weight},
                      [](const std::vector<at::Tensor>& inputs) { return at::linear(inputs[0], inputs[1]); });
  }

  const Measurer& measurer_;
};

}  // namespace

std::vector<ModelProduct> measure_products(const ModelConfig& config, const InputShape& input,
                                           const MeasureProducts& options) {
  open_meta_device();
  Model model = make_model(config, input, at::kMeta, /*seed=*/0);
  Measurer measurer(options);
  model.set_operations(all_through(std::make_shared<MeasuredOperations>(measurer)));
  const c10::NoGradGuard no_gradients;
  const ShapeOfBatch batch = shape_of_batch(input, options.batch);
  model.forward(batch.input, {.training = true, .target = batch.target});
  return measurer.take();
}

Json to_json(const std::vector<ModelProduct>& products) {
  Json list = Json::array();
  for (const ModelProduct& product : products) {
    Json times = Json::object();
    for (const auto& [type, time] : product.times)
      times[type] = {{"forward_s", time.forward_s}, {"backward_s", time.backward_s}};
    list.push_back({{"operation", product.operation},
                    {"shape", product.shape},
                    {"calls", product.calls},
                    {"flops", product.flops},
                    {"times", times}});
  }
  return list;
}

std::string products_text(const std::vector<ModelProduct>& products) {
  std::string text;
  std::map<std::string, double> totals;
  for (const ModelProduct& product : products) {
    text += fmt::format("  {:>3} × {:<12} {:<52}", product.calls, product.operation, product.shape);
    for (const auto& [type, time] : product.times) {
      const double all = time.forward_s + time.backward_s;
      totals[type] += static_cast<double>(product.calls) * all;
      text += fmt::format("  {} {:>8.1f} GFLOP/s", type, 3 * product.flops / all / 1e9);
    }
    text += "\n";
  }
  for (const auto& [type, seconds] : totals)
    text += fmt::format("  all of them, forward and backward, in {}: {:.1f} ms\n", type, seconds * 1e3);
  return text;
}

}  // namespace trainopt
