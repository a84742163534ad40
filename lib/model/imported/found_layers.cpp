#include "model/imported/found_layers.h"

#include "model/imported/instruction.h"
#include "model/imported/node_arguments.h"
#include "model/imported/written_layers.h"
#include "model/program/flops.h"

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

class Finder : LayerView {
 public:
  using LayerView::LayerView;

  std::map<std::string, FoundLayers> found() {
    each("conv2d", "convolutions", [&](size_t at) { return convolution(at); });
    each("linear", "linear layers", [&](size_t at) { return linear(at); });
    each("addmm", "linear layers", [&](size_t at) { return linear_of_addmm(*this, at); });
    each("gelu", "GELUs", [&](size_t at) { return gelu(at); });
    each("tanh", "GELUs", [&](size_t at) { return written_gelu(*this, at); });
    each("erf", "GELUs", [&](size_t at) { return written_gelu(*this, at); });
    each("scaled_dot_product_attention", "attentions", [&](size_t at) { return attention(*this, at); });
    each("softmax", "attentions", [&](size_t at) { return written_attention(*this, at); });
    each("batch_norm", "batch-norms", [&](size_t at) { return batch_norm(at); });
    each("layer_norm", "layer norms", [&](size_t at) { return layer_norm(at); });
    each("adaptive_avg_pool2d", "average pools", [&](size_t at) { return head(at); });
    return std::move(result_);
  }

 private:
  /// Calls `look` for each such operation: it changes the nodes, or returns why it does not, or kOtherLayer.
  void each(std::string_view operation, const std::string& kind, const std::function<std::string(size_t)>& look) {
    const bool may_be_other = operation == "tanh" || operation == "erf" || operation == "softmax";
    index();
    for (size_t at = 0; at < nodes().size(); ++at) {
      if (!nodes()[at] || aten_name(nodes()[at]->target) != operation) continue;
      const bool usual = is_usual(*nodes()[at]) && is_of_tensors(*nodes()[at]);
      if (may_be_other && !usual) continue;
      const std::string why = usual                    ? look(at)
                              : is_usual(*nodes()[at]) ? "their input or result is no tensor"
                                                       : "they run without gradients or autocast";
      if (why == kOtherLayer) continue;
      FoundLayers& of_kind = result_[kind];
      why.empty() ? ++of_kind.found : ++of_kind.left[why];
      if (why.empty()) index();
    }
  }

  /// Whether the operation is given a value and returns one. An archive may hold anything.
  static bool is_of_tensors(const ProgramNode& node) {
    const bool attends = value_argument(node, "query") && value_argument(node, "key") && value_argument(node, "value");
    return (attends || value_argument(node, "input") || value_argument(node, "self")) && first_output(node).index >= 0;
  }

  std::string convolution(size_t at) {
    const ProgramNode& node = *nodes()[at];
    const auto weight = stored(node, "weight");
    if (!weight) return "their weights are computed";
    const auto bias = stored(node, "bias");
    if (!bias && !is_none(node, "bias")) return "their bias is computed";
    if (!node.target.ends_with(".default")) return "their padding is given by name";
    const ProgramTensor& filters = *tensor_of(weight->index);
    const auto stride = same_number(node, "stride", 1), padding = same_number(node, "padding", 0);
    if (filters.sizes.size() != 4 || filters.sizes[2] != filters.sizes[3]) return "their kernels are not square";
    if (!stride || !padding) return "their stride or padding differs by direction";
    if (same_number(node, "dilation", 1) != 1) return "they are dilated";
    const int64_t groups = same_number(node, "groups", 1).value_or(1);
    std::vector<ProgramNode::Input> inputs{given("input", *value_argument(node, "input")), given("weight", *weight),
                                           given("stride", *stride), given("padding", *padding),
                                           given("groups", groups)};
    if (bias) inputs.push_back(given("bias", *bias));
    put(at, kConvolutionLayer, std::move(inputs), {one_output(node)});
    return "";
  }

  std::string linear(size_t at) {
    const ProgramNode& node = *nodes()[at];
    const auto weight = stored(node, "weight"), bias = stored(node, "bias");
    if (!weight || (!bias && !is_none(node, "bias"))) return "their weights are computed";
    std::vector<ProgramNode::Input> inputs{given("input", *value_argument(node, "input")), given("weight", *weight)};
    if (bias) inputs.push_back(given("bias", *bias));
    put(at, kLinearLayer, std::move(inputs), {one_output(node)});
    return "";
  }

  std::string gelu(size_t at) {
    const ProgramNode& node = *nodes()[at];
    const ProgramValue input = *value_argument(node, "self");
    const auto before = maker(input, at);
    if (!before || nodes()[*before]->target != kLinearLayer || argument_of(*nodes()[*before], "bias") == nullptr)
      return "no linear layer with a bias is before them";
    if (only_user(input, at) != at || is_written_between(*value_argument(*nodes()[*before], "input"), *before, at))
      return "others use what the linear layer before them returns";
    const ProgramItem* form = constant_argument(node, "approximate");
    const auto* word = form == nullptr ? nullptr : std::get_if<std::string>(form);
    auto inputs = nodes()[*before]->inputs;
    inputs.push_back(given("approximate", word == nullptr ? std::string("none") : *word));
    put(at, kLinearGeluLayer, std::move(inputs), {one_output(node)});
    nodes()[*before].reset();
    return "";
  }

  std::string layer_norm(size_t at) {
    const ProgramNode& node = *nodes()[at];
    const auto weight = stored(node, "weight"), bias = stored(node, "bias");
    if (!weight || !bias) return "they have no weight or no bias";
    if (numbers_of(node, "normalized_shape").size() != 1) return "they are over several dimensions";
    const ProgramValue input = *value_argument(node, "input"), output = first_output(node);
    std::vector<ProgramNode::Input> inputs{given("weight", *weight), given("bias", *bias),
                                           given("eps", real_number(node, "eps").value_or(1e-5)),
                                           given("is_cast", is_cast(output.index))};
    const auto addition = maker(input, at);
    if (!addition || nodes()[*addition]->target != "torch.ops.aten.add.Tensor" || !adds_alike(*nodes()[*addition]) ||
        is_written_between(input, *addition, at)) {
      inputs.push_back(given("input", input));
      put(at, kLayerNormLayer, std::move(inputs), {one_output(node)});
      return "";
    }
    ProgramValue residual = *value_argument(*nodes()[*addition], "self"),
                 branch = *value_argument(*nodes()[*addition], "other");
    const auto made = [&](const ProgramValue& value) {
      return made_at(value.index) == kNoNode ? 0 : made_at(value.index) + 1;
    };
    if (made(residual) > made(branch)) std::swap(residual, branch);  // the stream is older than what is added to it
    inputs.push_back(given("residual", residual));
    inputs.push_back(given("branch", branch));
    put(*addition, kAddLayerNormLayer, std::move(inputs), {one_output(*nodes()[*addition]), one_output(node)});
    nodes()[at].reset();
    return "";
  }

  /// An addition of two floating-point tensors of one shape and type.
  bool adds_alike(const ProgramNode& node) const {
    const auto a = value_argument(node, "self"), b = value_argument(node, "other");
    if (!a || !b || !same_sizes(a->index, b->index)) return false;
    const auto type = tensor_of(a->index)->type;
    return type && is_floating(*type) && tensor_of(b->index)->type == type &&
           real_number(node, "alpha").value_or(1) == 1;
  }

  /// The node that counts the batches of a batch-norm, `count`; kNoNode if something else reads or changes the count.
  size_t counting_node(const ProgramValue& count) const {
    if (users(count.index).size() != 1 || users(count.index).front() == kNoNode) return kNoNode;
    const size_t at = users(count.index).front();
    const bool counts = nodes()[at] && nodes()[at]->target == "torch.ops.aten.add_.Tensor" &&
                        value_argument(*nodes()[at], "self") == count && real_number(*nodes()[at], "other") == 1 &&
                        users(first_output(*nodes()[at]).index).empty();
    return counts ? at : kNoNode;
  }

  std::optional<ProgramValue> named(const std::string& name) const {
    for (const auto& [value, own] : search().names)
      if (own == name) return ProgramValue{value};
    return std::nullopt;
  }

  std::string batch_norm(size_t at) {
    constexpr std::string_view kMean = "running_mean";
    const ProgramNode& node = *nodes()[at];
    const auto weight = stored(node, "weight"), bias = stored(node, "bias"), mean = stored(node, kMean),
               variance = stored(node, "running_var");
    const auto momentum = real_number(node, "momentum"), epsilon = real_number(node, "eps");
    if (!weight || !bias || !mean || !variance || !momentum || !epsilon) return "they have no weight or no statistics";
    if (truth(node, "training") != search().training) return "their statistics are frozen";
    const ProgramValue input = *value_argument(node, "input");
    if (tensor_of(input.index) == nullptr || tensor_of(input.index)->sizes.size() != 4)
      return "they are not over images";
    std::string name = search().names.at(mean->index);
    const auto count = name.ends_with(kMean)
                           ? named(name.replace(name.size() - kMean.size(), kMean.size(), "num_batches_tracked"))
                           : std::nullopt;
    const size_t counting = count && search().training ? counting_node(*count) : kNoNode;
    if (!count || (search().training && counting == kNoNode))
      return "their count of batches is absent or used otherwise";
    if (counting != kNoNode && unit_of(counting) != unit_of(at)) return "a unit ends before they count their batch";
    if (is_used_beside(*mean, at) || is_used_beside(*variance, at)) return "others use their statistics";
    std::vector<ProgramNode::Input> inputs{
        given("input", input),        given("weight", *weight),        given("bias", *bias),
        given(kMean, *mean),          given("running_var", *variance), given("count", *count),
        given("momentum", *momentum), given("eps", *epsilon)};
    const size_t last = with_what_follows(at, input, inputs);
    put(last, kBatchNormLayer, std::move(inputs), {one_output(*nodes()[last])});
    if (last != at) nodes()[at].reset();
    if (counting != kNoNode) nodes()[counting].reset();
    return "";
  }

  /// Adds what follows a batch-norm to its inputs, takes those nodes away but for the last, and returns it.
  size_t with_what_follows(size_t at, const ProgramValue& input, std::vector<ProgramNode::Input>& inputs) {
    const ProgramValue normalised = first_output(*nodes()[at]);
    const auto next = only_user(normalised, at);
    if (!next) return at;
    if (is(*next, "relu", "relu_") && !is_written_between(input, at, *next)) {
      inputs.push_back(given("relu", true));
      const auto pool = only_user(first_output(*nodes()[*next]), at);
      if (!pool || !is_stem_pool(*nodes()[*pool]) || is_written_between(input, at, *pool)) return *next;
      inputs.push_back(given("pool", true));
      nodes()[*next].reset();
      return *pool;
    }
    const std::string& target = nodes()[*next]->target;
    const bool in_place = target == "torch.ops.aten.add_.Tensor";
    if ((!in_place && target != "torch.ops.aten.add.Tensor") || !adds_alike(*nodes()[*next])) return at;
    const auto self = *value_argument(*nodes()[*next], "self"), other = *value_argument(*nodes()[*next], "other");
    if (self == other || (in_place && self != normalised)) return at;
    const ProgramValue residual = self == normalised ? other : self;
    const auto relu = only_user(first_output(*nodes()[*next]), at);
    if (!relu || !is(*relu, "relu", "relu_") || is_written_between(input, at, *relu) ||
        is_written_between(residual, *next, *relu))
      return at;
    inputs.push_back(given("relu", true));
    inputs.push_back(given("residual", residual));
    nodes()[*next].reset();
    return *relu;
  }

  static bool is_stem_pool(const ProgramNode& node) {
    return aten_name(node.target) == "max_pool2d" && same_number(node, "kernel_size", 0) == 3 &&
           same_number(node, "stride", 0) == 2 && same_number(node, "padding", 0) == 1 &&
           same_number(node, "dilation", 1) == 1 && !truth(node, "ceil_mode");
  }

  std::string head(size_t at) {
    const ProgramNode& node = *nodes()[at];
    const ProgramValue input = *value_argument(node, "self");
    if (same_number(node, "output_size", 0) != 1) return "they keep several values";
    if (tensor_of(input.index) == nullptr || tensor_of(input.index)->sizes.size() != 4) return "they are not of images";
    const size_t flat = next_of(first_output(node));
    const bool flattens =
        flat != kNoNode && is(flat, "flatten") && same_number(*nodes()[flat], "start_dim", 0) == 1 &&
        (same_number(*nodes()[flat], "end_dim", -1) == -1 || same_number(*nodes()[flat], "end_dim", -1) == 3);
    const size_t layer = flattens ? next_of(first_output(*nodes()[flat])) : kNoNode;
    if (layer == kNoNode || nodes()[layer]->target != kLinearLayer) return "no linear layer follows them";
    if (unit_of(layer) != unit_of(at)) return "a unit ends between them and the linear layer";
    if (only_user(first_output(node), at) != flat || only_user(first_output(*nodes()[flat]), at) != layer)
      return "others use what they return";
    if (is_written_between(input, at, layer)) return "their input is changed before the linear layer";
    auto inputs = nodes()[layer]->inputs;
    for (auto& each : inputs)
      if (each.name == "input") each = given("input", input);
    put(layer, kHeadLayer, std::move(inputs), {one_output(*nodes()[layer])});
    nodes()[flat].reset();
    nodes()[at].reset();
    return "";
  }

  std::map<std::string, FoundLayers> result_;
};

}  // namespace

std::map<std::string, FoundLayers> find_layers(ProgramNodes& nodes, const LayerSearch& search) {
  return Finder(nodes, search).found();
}

}  // namespace trainopt
