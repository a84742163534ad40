#include "base/error.h"
#include "device/autocast.h"
#include "device/tensor.h"
#include "model/imported/aliases.h"
#include "model/imported/found_layers.h"
#include "model/imported/instruction.h"
#include "model/operations.h"

#include <ATen/record_function.h>

#include <array>

namespace trainopt {
namespace {

/// The inputs of a layer's node, by name.
class LayerInputs {
 public:
  LayerInputs(const ProgramNode& node, const InstructionSite& site) : node_(node), site_(site) {}

  bool has(std::string_view name) const {
    return constant_argument(node_, name) != nullptr || value_argument(node_, name).has_value();
  }
  size_t value(std::string_view name) const { return static_cast<size_t>(value_argument(node_, name).value().index); }
  at::Tensor tensor(std::string_view name) const {
    return has(name) ? site_.tensors.at(value_argument(node_, name)->index) : at::Tensor();
  }
  WeightCopy copy(std::string_view name) const {
    const auto found = has(name) ? site_.copies.find(value_argument(node_, name)->index) : site_.copies.end();
    return found == site_.copies.end() ? std::make_shared<at::Tensor>() : found->second;
  }
  template <class T>
  T constant(std::string_view name) const {
    return std::get<T>(*constant_argument(node_, name));
  }
  bool flag(std::string_view name) const { return has(name) && constant<bool>(name); }

 private:
  const ProgramNode& node_;
  const InstructionSite& site_;
};

/// A tensor that the step computed. `stored`: it is a parameter or buffer instead, which has no place in the values.
struct Source {
  size_t value;
  at::Tensor stored;

  Source(const LayerInputs& inputs, std::string_view name, const InstructionSite& site) : value(inputs.value(name)) {
    if (const auto found = site.tensors.find(static_cast<int64_t>(value)); found != site.tensors.end())
      stored = found->second;
  }
  at::Tensor get(const ProgramValues& values) const { return stored.defined() ? stored : values[value].toTensor(); }
};

using Run = std::function<void(ProgramValues&, const ForwardContext&)>;

/// The operations that a layer stands for, one after the other. Values that none of the others needs are freed.
Run written(const ProgramNode& layer, const ProgramGraph& graph, const InstructionSite& site) {
  const auto& nodes = std::get<std::shared_ptr<ProgramGraph>>(*constant_argument(layer, "written"))->nodes;
  std::vector<Instruction> all;
  std::map<int64_t, size_t> last_use;
  for (const ProgramNode& node : nodes) {
    for_each_output(node, [&](int64_t value) { last_use[value] = all.size(); });
    for_each_input(node, [&](int64_t value) {
      if (const auto made = last_use.find(value); made != last_use.end()) made->second = all.size();
    });
    all.push_back(make_instruction(node, graph, site));
  }
  last_use.erase(first_output(layer).index);
  for (const auto& [value, at] : last_use) all[at].last_uses.push_back(value);
  return [all](ProgramValues& values, const ForwardContext& context) {
    for (const Instruction& instruction : all) {
      instruction.run(values, context);
      for (const int64_t used : instruction.last_uses) values[static_cast<size_t>(used)] = {};
    }
  };
}

Run convolution(const LayerInputs& inputs, const InstructionSite& site, size_t output) {
  const at::Tensor weight = inputs.tensor("weight");
  const auto groups = inputs.constant<int64_t>("groups");
  const Conv2d::Shape shape{.in = weight.size(1) * groups,
                            .out = weight.size(0),
                            .kernel = weight.size(2),
                            .stride = inputs.constant<int64_t>("stride"),
                            .padding = inputs.constant<int64_t>("padding"),
                            .groups = groups};
  return [=, input = Source(inputs, "input", site), copy = inputs.copy("weight"), bias = inputs.tensor("bias"),
          bias_copy = inputs.copy("bias"), operations = site.operations](ProgramValues& values, const ForwardContext&) {
    const at::Tensor image = input.get(values), filters = as_autocast(weight, copy);
    const std::array<int64_t, 2> stride{shape.stride, shape.stride}, padding{shape.padding, shape.padding};
    if (!bias.defined()) {
      values[output] = operations->convolution->forward(shape, image, filters);
    } else if (!operations->convolution->supports(shape, image)) {
      values[output] =
          at::conv2d(image, filters, as_autocast(bias, bias_copy), stride, padding, /*dilation=*/1, shape.groups);
    } else {  // the slot has no bias
      const at::Tensor result = operations->convolution->forward(shape, image, filters);
      values[output] = result + bias.to(result.scalar_type()).view({-1, 1, 1});
    }
  };
}

Linear linear_of(const LayerInputs& inputs, const InstructionSite& site) {
  return {{.weight = inputs.tensor("weight"),
           .bias = inputs.tensor("bias"),
           .weight_copy = inputs.copy("weight"),
           .bias_copy = inputs.copy("bias"),
           .transposed = inputs.flag("transposed")},
          site.operations};
}

Run linear(const LayerInputs& inputs, const InstructionSite& site, const Linear& layer, size_t output) {
  return [layer, output, input = Source(inputs, "input", site)](ProgramValues& values, const ForwardContext&) {
    values[output] = layer.forward(input.get(values));
  };
}

/// Outside of autocast, or if nothing depends on the type of the result there, a slot may choose it.
bool may_choose_type(const at::Tensor& input, bool is_cast) { return is_cast || !autocast_type(input.device().type()); }

Run linear_gelu(const LayerInputs& inputs, const InstructionSite& site, const Linear& layer, size_t output,
                const Run& as_written) {
  const GeluForm form = inputs.constant<std::string>("approximate") == "tanh" ? GeluForm::tanh : GeluForm::exact;
  return [=, input = Source(inputs, "input", site), is_cast = inputs.flag("is_cast"), operations = site.operations](
             ProgramValues& values, const ForwardContext& context) {
    const at::Tensor x = input.get(values);
    const bool keeps = operations->gelu->keeps_written_gelu() || !may_choose_type(x, is_cast);
    if (as_written && keeps) {
      RECORD_FUNCTION(kWrittenGeluLabel, std::vector<c10::IValue>());
      return as_written(values, context);
    }
    values[output] = operations->gelu->linear_gelu(x, layer, form);
  };
}

Run head(const LayerInputs& inputs, const InstructionSite& site, const Linear& layer, size_t output) {
  return [layer, output, input = Source(inputs, "input", site), operations = site.operations](
             ProgramValues& values, const ForwardContext& context) {
    values[output] = operations->head->head(input.get(values), layer, context);
  };
}

/// Keys or values with each head repeated for all heads of queries that share it.
at::Tensor for_each_query_head(const at::Tensor& tensor, int64_t sharing) {
  return sharing == 1 ? tensor : tensor.unsqueeze(2).expand({-1, -1, sharing, -1, -1}).flatten(1, 2);
}

Run attention(const LayerInputs& inputs, const InstructionSite& site, size_t output, const Run& as_written) {
  const AttentionOptions options{.causal = inputs.flag("is_causal"), .dropout = inputs.constant<double>("dropout_p")};
  return [=, query = Source(inputs, "query", site), key = Source(inputs, "key", site),
          value = Source(inputs, "value", site), transposed = inputs.flag("key_is_transposed"),
          is_libtorchs = inputs.flag("is_libtorchs"), sharing = inputs.constant<int64_t>("sharing"),
          operations = site.operations](ProgramValues& values, const ForwardContext& context) {
    if (as_written && operations->attention->keeps_written_attention()) {
      if (is_libtorchs) return as_written(values, context);
      RECORD_FUNCTION(kWrittenAttentionLabel, std::vector<c10::IValue>());
      return as_written(values, context);
    }
    // As autocast casts what libtorch's attention takes.
    const auto type = autocast_type(query.get(values).device().type());
    const auto by_head = [&](const at::Tensor& given_tensor) {
      const at::Tensor tensor = type ? given_tensor.to(*type) : given_tensor;
      return tensor.stride(-1) == 1 ? tensor : tensor.contiguous();
    };
    const auto of_keys = [&] {
      const at::Tensor tensor = key.get(values);
      return transposed ? tensor.transpose(-2, -1) : tensor;
    };
    const at::Tensor q = by_head(query.get(values)), k = by_head(for_each_query_head(of_keys(), sharing)),
                     v = by_head(for_each_query_head(value.get(values), sharing));
    const bool alike = q.scalar_type() == k.scalar_type() && q.scalar_type() == v.scalar_type();
    values[output] = alike ? operations->attention->attention(q, k, v, options, context)
                           : PlainAttentionOperations().attention(q, k, v, options, context);
  };
}

LayerNorm layer_norm_of(const LayerInputs& inputs) {
  LayerNorm norm;
  norm.weight = inputs.tensor("weight");
  norm.bias = inputs.tensor("bias");
  norm.epsilon = inputs.constant<double>("eps");
  return norm;
}

const LayerNormOperations& chosen(const std::shared_ptr<const Operations>& operations, bool may_choose) {
  static const PlainLayerNormOperations plain;
  return may_choose ? *operations->layer_norm : plain;
}

Run layer_norm(const LayerInputs& inputs, const InstructionSite& site, size_t output) {
  return [norm = layer_norm_of(inputs), output, input = Source(inputs, "input", site), is_cast = inputs.flag("is_cast"),
          operations = site.operations](ProgramValues& values, const ForwardContext&) {
    const at::Tensor tensor = input.get(values);
    values[output] = chosen(operations, may_choose_type(tensor, is_cast)).layer_norm(tensor, norm);
  };
}

Run add_layer_norm(const LayerInputs& inputs, const InstructionSite& site, size_t sum, size_t normalised) {
  return [=, norm = layer_norm_of(inputs), residual = Source(inputs, "residual", site),
          branch = Source(inputs, "branch", site), is_cast = inputs.flag("is_cast"),
          operations = site.operations](ProgramValues& values, const ForwardContext&) {
    const at::Tensor stream = residual.get(values);
    auto result = chosen(operations, may_choose_type(stream, is_cast)).add_layer_norm(stream, branch.get(values), norm);
    values[sum] = std::move(result.sum);
    values[normalised] = std::move(result.normalised);
  };
}

Run batch_norm(const LayerInputs& inputs, const InstructionSite& site, size_t output) {
  BatchNorm2d norm;
  norm.weight = inputs.tensor("weight");
  norm.bias = inputs.tensor("bias");
  norm.running_mean = inputs.tensor("running_mean");
  norm.running_var = inputs.tensor("running_var");
  norm.num_batches_tracked = inputs.tensor("count");
  norm.momentum = inputs.constant<double>("momentum");
  norm.epsilon = inputs.constant<double>("eps");
  const Source input(inputs, "input", site);
  const auto operations = site.operations;
  if (inputs.has("residual"))
    return [=, residual = Source(inputs, "residual", site)](ProgramValues& values, const ForwardContext& context) {
      const at::Tensor x = input.get(values), other = residual.get(values);
      if (context.training) require_two_values(x);
      // Where autocast left the types apart, the sum has the wider one, which the slot does not promise.
      values[output] = other.scalar_type() == x.scalar_type()
                           ? operations->batch_norm->batch_norm_add_relu(x, norm, other, context)
                           : at::relu(operations->batch_norm->batch_norm(x, norm, context) + other);
    };
  return [=, relu = inputs.flag("relu"), pool = inputs.flag("pool")](ProgramValues& values,
                                                                     const ForwardContext& context) {
    const BatchNormOperations& slot = *operations->batch_norm;
    const at::Tensor x = input.get(values);
    if (context.training) require_two_values(x);
    values[output] = pool   ? slot.stem_pool(x, norm, context)
                     : relu ? slot.batch_norm_relu(x, norm, context)
                            : slot.batch_norm(x, norm, context);
  };
}

}  // namespace

Instruction make_layer_instruction(const ProgramNode& node, const ProgramGraph& graph, const InstructionSite& site) {
  const LayerInputs inputs(node, site);
  const Run as_written = inputs.has("written") ? written(node, graph, site) : nullptr;
  const auto output = [&](size_t i) {
    const int64_t index = node.outputs.at(i).values.at(0).index;
    TRAINOPT_CHECK(index >= 0);
    return static_cast<size_t>(index);
  };
  if (node.target == kConvolutionLayer) return {.run = convolution(inputs, site, output(0))};
  if (node.target == kLinearLayer) return {.run = linear(inputs, site, linear_of(inputs, site), output(0))};
  if (node.target == kLinearGeluLayer)
    return {.run = linear_gelu(inputs, site, linear_of(inputs, site), output(0), as_written)};
  if (node.target == kHeadLayer) return {.run = head(inputs, site, linear_of(inputs, site), output(0))};
  if (node.target == kAttentionLayer) return {.run = attention(inputs, site, output(0), as_written)};
  if (node.target == kLayerNormLayer) return {.run = layer_norm(inputs, site, output(0))};
  if (node.target == kAddLayerNormLayer) return {.run = add_layer_norm(inputs, site, output(0), output(1))};
  TRAINOPT_CHECK(node.target == kBatchNormLayer);
  return {.run = batch_norm(inputs, site, output(0))};
}

}  // namespace trainopt
