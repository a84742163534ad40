#include "model/imported/found_layers.h"

#include "model/imported/instruction.h"
#include "model/program/flops.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace trainopt {
namespace {

constexpr size_t kNoNode = std::numeric_limits<size_t>::max();

const ProgramArgument* argument_of(const ProgramNode& node, std::string_view name) {
  for (const auto& input : node.inputs)
    if (input.name == name) return &input.argument;
  return nullptr;
}

/// Whole numbers: one for all dimensions, or one for each. Empty: the argument is absent or something else.
std::vector<int64_t> numbers_of(const ProgramNode& node, std::string_view name) {
  std::vector<int64_t> numbers;
  if (const ProgramArgument* argument = argument_of(node, name))
    for (const ProgramItem& item : argument->items) {
      const auto* number = std::get_if<int64_t>(&item);
      if (number == nullptr) return {};
      numbers.push_back(*number);
    }
  return numbers;
}

/// The number that a list of equal ones repeats; `otherwise` if it is absent; null if they differ.
std::optional<int64_t> same_number(const ProgramNode& node, std::string_view name, int64_t otherwise) {
  if (argument_of(node, name) == nullptr) return otherwise;
  const std::vector<int64_t> numbers = numbers_of(node, name);
  const bool same = !numbers.empty() && std::count(numbers.begin(), numbers.end(), numbers[0]) == std::ssize(numbers);
  return same ? std::optional(numbers[0]) : std::nullopt;
}

std::optional<double> real_number(const ProgramNode& node, std::string_view name) {
  const ProgramItem* item = constant_argument(node, name);
  if (item == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<double>(item)) return *number;
  if (const auto* number = std::get_if<int64_t>(item)) return static_cast<double>(*number);
  return std::nullopt;
}

bool truth(const ProgramNode& node, std::string_view name) {
  const ProgramItem* item = constant_argument(node, name);
  const bool* given = item == nullptr ? nullptr : std::get_if<bool>(item);
  return given != nullptr && *given;
}

bool is_none(const ProgramNode& node, std::string_view name) {
  const ProgramArgument* argument = argument_of(node, name);
  return argument == nullptr || (!argument->is_list && std::holds_alternative<std::monostate>(argument->items.front()));
}

ProgramNode::Input given(std::string_view name, ProgramItem item) {
  return {.name = std::string(name), .argument = {.items = {std::move(item)}}};
}

ProgramNode::Output one_output(const ProgramNode& node) { return {.values = {first_output(node)}}; }

/// Operations that pass values on, perhaps in another order or shape, without computing with them.
bool moves_values(std::string_view name) {
  static const std::set<std::string_view> all = {
      "view",   "reshape", "flatten", "unflatten", "permute", "transpose",    "contiguous",      "expand",
      "slice",  "select",  "squeeze", "unsqueeze", "roll",    "pad",          "chunk",           "split",
      "unbind", "dropout", "t",       "clone",     "narrow",  "_unsafe_view", "constant_pad_nd", "dropout_"};
  return all.contains(name);
}
/// Operations that autocast runs in 16 bits, whatever the type of their inputs.
bool is_product(std::string_view target) {
  static const std::set<std::string_view> all = {
      "conv1d", "conv2d", "conv3d", "matmul",  "mm",
      "bmm",    "addmm",  "linear", "baddbmm", "scaled_dot_product_attention"};
  return target.starts_with("layer.") ? target == kLinearLayer || target == kLinearGeluLayer ||
                                            target == kAttentionLayer || target == kConvolutionLayer
                                      : all.contains(aten_name(std::string(target)));
}

class Finder {
 public:
  Finder(ProgramNodes& nodes, const LayerSearch& search) : nodes_(nodes), search_(search) {
    unit_of_.assign(nodes.size(), kNoNode);
    for (size_t unit = 0; unit < search.units.size(); ++unit)
      std::fill(unit_of_.begin() + static_cast<std::ptrdiff_t>(search.units[unit].first),
                unit_of_.begin() + static_cast<std::ptrdiff_t>(search.units[unit].end), unit);
  }

  std::map<std::string, FoundLayers> found() {
    each("conv2d", [&](size_t at) { return convolution(at); });
    each("linear", [&](size_t at) { return linear(at); });
    each("gelu", [&](size_t at) { return gelu(at); });
    each("scaled_dot_product_attention", [&](size_t at) { return attention(at); });
    each("batch_norm", [&](size_t at) { return batch_norm(at); });
    each("layer_norm", [&](size_t at) { return layer_norm(at); });
    each("adaptive_avg_pool2d", [&](size_t at) { return head(at); });
    return std::move(result_);
  }

 private:
  /// Calls `look` for each such operation: it changes the nodes, or returns why it does not.
  void each(std::string_view operation, const std::function<std::string(size_t)>& look) {
    static const std::map<std::string_view, std::string> kKinds = {{"conv2d", "convolutions"},
                                                                   {"linear", "linear layers"},
                                                                   {"gelu", "GELUs"},
                                                                   {"scaled_dot_product_attention", "attentions"},
                                                                   {"batch_norm", "batch-norms"},
                                                                   {"layer_norm", "layer norms"},
                                                                   {"adaptive_avg_pool2d", "average pools"}};
    index();
    for (size_t at = 0; at < nodes_.size(); ++at) {
      if (!nodes_[at] || aten_name(nodes_[at]->target) != operation) continue;
      const std::string why = !is_usual(*nodes_[at])        ? "they run without gradients or autocast"
                              : !is_of_tensors(*nodes_[at]) ? "their input or result is no tensor"
                                                            : look(at);
      FoundLayers& of_kind = result_[kKinds.at(operation)];
      why.empty() ? ++of_kind.found : ++of_kind.left[why];
    }
  }

  /// Whether the operation is given a value and returns one. An archive may hold anything.
  static bool is_of_tensors(const ProgramNode& node) {
    const bool attends = value_argument(node, "query") && value_argument(node, "key") && value_argument(node, "value");
    return (attends || value_argument(node, "input") || value_argument(node, "self")) && first_output(node).index >= 0;
  }

  void index() {
    made_by_.clear();
    users_.clear();
    for (size_t at = 0; at < nodes_.size(); ++at) {
      if (!nodes_[at]) continue;
      for_each_output(*nodes_[at], [&](int64_t value) { made_by_[value] = at; });
      for_each_input(*nodes_[at], [&](int64_t value) { users_[value].push_back(at); });
    }
    for (const NodeRange& unit : search_.units) users_[unit.output.index].push_back(kNoNode);
  }

  const ProgramTensor* tensor_of(int64_t value) const {
    const auto& tensor = search_.graph.values[static_cast<size_t>(value)].tensor;
    return tensor ? &*tensor : nullptr;
  }
  bool same_sizes(int64_t a, int64_t b) const {
    return tensor_of(a) != nullptr && tensor_of(b) != nullptr && tensor_of(a)->sizes == tensor_of(b)->sizes;
  }
  /// The stored tensor that is an argument; null if it is absent or computed.
  std::optional<ProgramValue> stored(const ProgramNode& node, std::string_view name) const {
    const auto value = value_argument(node, name);
    return value && search_.names.contains(value->index) && tensor_of(value->index) != nullptr ? value : std::nullopt;
  }
  /// The only node that uses a value, if it is in the unit of `at`.
  std::optional<size_t> only_user(const ProgramValue& value, size_t at) const {
    const auto users = users_.find(value.index);
    if (users == users_.end() || users->second.size() != 1 || users->second.front() == kNoNode) return std::nullopt;
    const size_t user = users->second.front();
    return nodes_[user] && unit_of_[user] == unit_of_[at] && is_usual(*nodes_[user]) ? std::optional(user)
                                                                                     : std::nullopt;
  }
  /// The node that makes a value, if it is in the unit of `at`.
  std::optional<size_t> maker(const ProgramValue& value, size_t at) const {
    const auto made = made_by_.find(value.index);
    const bool here = made != made_by_.end() && nodes_[made->second] && unit_of_[made->second] == unit_of_[at];
    return here && is_usual(*nodes_[made->second]) ? std::optional(made->second) : std::nullopt;
  }
  static bool is_usual(const ProgramNode& node) { return !node.no_gradients && !node.no_autocast && !node.keeps_type; }
  /// Whether another node of the unit uses a value, or what shares its memory.
  bool is_used_beside(const ProgramValue& value, size_t of) const {
    const int64_t set = search_.aliases.set_of(value.index);
    const NodeRange& unit = search_.units[unit_of_[of]];
    for (size_t at = unit.first; at < unit.end; ++at) {
      if (at == of || !nodes_[at]) continue;
      bool uses = false;
      for_each_input(*nodes_[at], [&](int64_t used) { uses = uses || search_.aliases.set_of(used) == set; });
      if (uses) return true;
    }
    return false;
  }
  bool is_written_between(const ProgramValue& value, size_t first, size_t last) const {
    const int64_t set = search_.aliases.set_of(value.index);
    for (size_t at = first + 1; at < last; ++at)
      if (nodes_[at])
        for (const int64_t written : written_values(*nodes_[at]))
          if (search_.aliases.set_of(written) == set) return true;
    return false;
  }
  bool is(size_t at, std::string_view name, std::string_view in_place = "") const {
    const std::string_view own = aten_name(nodes_[at]->target);
    return own == name || (!in_place.empty() && own == in_place);
  }
  void put(size_t at, std::string_view target, std::vector<ProgramNode::Input> inputs,
           std::vector<ProgramNode::Output> outputs) {
    ProgramNode node{.target = std::string(target), .inputs = std::move(inputs), .outputs = std::move(outputs)};
    node.modules = nodes_[at]->modules;
    nodes_[at] = std::move(node);
  }

  std::string convolution(size_t at) {
    const ProgramNode& node = *nodes_[at];
    const auto weight = stored(node, "weight");
    if (!weight) return "their weights are computed";
    if (!is_none(node, "bias")) return "they have a bias";
    if (!node.target.ends_with(".default")) return "their padding is given by name";
    const ProgramTensor& filters = *tensor_of(weight->index);
    const auto stride = same_number(node, "stride", 1), padding = same_number(node, "padding", 0);
    if (filters.sizes.size() != 4 || filters.sizes[2] != filters.sizes[3]) return "their kernels are not square";
    if (!stride || !padding) return "their stride or padding differs by direction";
    if (same_number(node, "dilation", 1) != 1) return "they are dilated";
    const int64_t groups = same_number(node, "groups", 1).value_or(1);
    put(at, kConvolutionLayer,
        {given("input", *value_argument(node, "input")), given("weight", *weight), given("stride", *stride),
         given("padding", *padding), given("groups", groups)},
        {one_output(node)});
    return "";
  }

  std::string linear(size_t at) {
    const ProgramNode& node = *nodes_[at];
    const auto weight = stored(node, "weight"), bias = stored(node, "bias");
    if (!weight || (!bias && !is_none(node, "bias"))) return "their weights are computed";
    std::vector<ProgramNode::Input> inputs{given("input", *value_argument(node, "input")), given("weight", *weight)};
    if (bias) inputs.push_back(given("bias", *bias));
    put(at, kLinearLayer, std::move(inputs), {one_output(node)});
    return "";
  }

  std::string gelu(size_t at) {
    const ProgramNode& node = *nodes_[at];
    const ProgramValue input = *value_argument(node, "self");
    const auto before = maker(input, at);
    if (!before || nodes_[*before]->target != kLinearLayer || argument_of(*nodes_[*before], "bias") == nullptr)
      return "no linear layer with a bias is before them";
    if (only_user(input, at) != at || is_written_between(*value_argument(*nodes_[*before], "input"), *before, at))
      return "others use what the linear layer before them returns";
    const ProgramItem* form = constant_argument(node, "approximate");
    const auto* word = form == nullptr ? nullptr : std::get_if<std::string>(form);
    auto inputs = nodes_[*before]->inputs;
    inputs.push_back(given("approximate", word == nullptr ? std::string("none") : *word));
    put(at, kLinearGeluLayer, std::move(inputs), {one_output(node)});
    nodes_[*before].reset();
    return "";
  }

  std::string attention(size_t at) {
    const ProgramNode& node = *nodes_[at];
    if (!is_none(node, "attn_mask")) return "they have a mask";
    if (truth(node, "enable_gqa")) return "their heads share keys";
    const ProgramValue query = *value_argument(node, "query"), key = *value_argument(node, "key"),
                       value = *value_argument(node, "value");
    if (tensor_of(query.index) == nullptr || tensor_of(query.index)->sizes.size() != 4 ||
        !same_sizes(query.index, key.index) || !same_sizes(query.index, value.index))
      return "their queries, keys and values differ in shape";
    const auto* width = std::get_if<int64_t>(&tensor_of(query.index)->sizes.back());
    const auto scale = real_number(node, "scale"), rate = real_number(node, "dropout_p");
    if ((!scale && !is_none(node, "scale")) || (!rate && !is_none(node, "dropout_p")))
      return "their scale or dropout is computed";
    if (scale && (width == nullptr || std::abs(*scale * std::sqrt(static_cast<double>(*width)) - 1) > 1e-12))
      return "their scale is another";
    put(at, kAttentionLayer,
        {given("query", query), given("key", key), given("value", value), given("is_causal", truth(node, "is_causal")),
         given("dropout_p", real_number(node, "dropout_p").value_or(0))},
        {one_output(node)});
    return "";
  }

  /// Whether all that uses a value computes in 16 bits under autocast, so that its own type there does not matter.
  bool is_cast(int64_t value) const {
    const auto users = users_.find(value);
    return users != users_.end() && std::all_of(users->second.begin(), users->second.end(), [&](size_t user) {
             if (user == kNoNode || !nodes_[user] || !is_usual(*nodes_[user])) return false;
             if (is_product(nodes_[user]->target)) return true;
             if (!moves_values(aten_name(nodes_[user]->target))) return false;
             bool all = true;
             for_each_output(*nodes_[user], [&](int64_t moved) { all = all && is_cast(moved); });
             return all;
           });
  }

  std::string layer_norm(size_t at) {
    const ProgramNode& node = *nodes_[at];
    const auto weight = stored(node, "weight"), bias = stored(node, "bias");
    if (!weight || !bias) return "they have no weight or no bias";
    if (numbers_of(node, "normalized_shape").size() != 1) return "they are over several dimensions";
    const ProgramValue input = *value_argument(node, "input"), output = first_output(node);
    std::vector<ProgramNode::Input> inputs{given("weight", *weight), given("bias", *bias),
                                           given("eps", real_number(node, "eps").value_or(1e-5)),
                                           given("is_cast", is_cast(output.index))};
    const auto addition = maker(input, at);
    if (!addition || nodes_[*addition]->target != "torch.ops.aten.add.Tensor" || !adds_alike(*nodes_[*addition]) ||
        is_written_between(input, *addition, at)) {
      inputs.push_back(given("input", input));
      put(at, kLayerNormLayer, std::move(inputs), {one_output(node)});
      return "";
    }
    ProgramValue residual = *value_argument(*nodes_[*addition], "self"),
                 branch = *value_argument(*nodes_[*addition], "other");
    const auto made = [&](const ProgramValue& value) {
      const auto found = made_by_.find(value.index);
      return found == made_by_.end() ? 0 : found->second + 1;
    };
    if (made(residual) > made(branch)) std::swap(residual, branch);  // the stream is older than what is added to it
    inputs.push_back(given("residual", residual));
    inputs.push_back(given("branch", branch));
    put(*addition, kAddLayerNormLayer, std::move(inputs), {one_output(*nodes_[*addition]), one_output(node)});
    nodes_[at].reset();
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
    const auto users = users_.find(count.index);
    if (users == users_.end() || users->second.size() != 1 || users->second.front() == kNoNode) return kNoNode;
    const size_t at = users->second.front();
    const bool counts = nodes_[at] && nodes_[at]->target == "torch.ops.aten.add_.Tensor" &&
                        value_argument(*nodes_[at], "self") == count && real_number(*nodes_[at], "other") == 1 &&
                        !users_.contains(first_output(*nodes_[at]).index);
    return counts ? at : kNoNode;
  }

  std::optional<ProgramValue> named(const std::string& name) const {
    for (const auto& [value, own] : search_.names)
      if (own == name) return ProgramValue{value};
    return std::nullopt;
  }

  std::string batch_norm(size_t at) {
    constexpr std::string_view kMean = "running_mean";
    const ProgramNode& node = *nodes_[at];
    const auto weight = stored(node, "weight"), bias = stored(node, "bias"), mean = stored(node, kMean),
               variance = stored(node, "running_var");
    const auto momentum = real_number(node, "momentum"), epsilon = real_number(node, "eps");
    if (!weight || !bias || !mean || !variance || !momentum || !epsilon) return "they have no weight or no statistics";
    if (truth(node, "training") != search_.training) return "their statistics are frozen";
    const ProgramValue input = *value_argument(node, "input");
    if (tensor_of(input.index) == nullptr || tensor_of(input.index)->sizes.size() != 4)
      return "they are not over images";
    std::string name = search_.names.at(mean->index);
    const auto count = name.ends_with(kMean)
                           ? named(name.replace(name.size() - kMean.size(), kMean.size(), "num_batches_tracked"))
                           : std::nullopt;
    const size_t counting = count && search_.training ? counting_node(*count) : kNoNode;
    if (!count || (search_.training && counting == kNoNode))
      return "their count of batches is absent or used otherwise";
    if (counting != kNoNode && unit_of_[counting] != unit_of_[at]) return "a unit ends before they count their batch";
    if (is_used_beside(*mean, at) || is_used_beside(*variance, at)) return "others use their statistics";
    std::vector<ProgramNode::Input> inputs{
        given("input", input),        given("weight", *weight),        given("bias", *bias),
        given(kMean, *mean),          given("running_var", *variance), given("count", *count),
        given("momentum", *momentum), given("eps", *epsilon)};
    const size_t last = with_what_follows(at, input, inputs);
    put(last, kBatchNormLayer, std::move(inputs), {one_output(*nodes_[last])});
    if (last != at) nodes_[at].reset();
    if (counting != kNoNode) nodes_[counting].reset();
    return "";
  }

  /// Adds what follows a batch-norm to its inputs, takes those nodes away but for the last, and returns it.
  size_t with_what_follows(size_t at, const ProgramValue& input, std::vector<ProgramNode::Input>& inputs) {
    const ProgramValue normalised = first_output(*nodes_[at]);
    const auto next = only_user(normalised, at);
    if (!next) return at;
    if (is(*next, "relu", "relu_") && !is_written_between(input, at, *next)) {
      inputs.push_back(given("relu", true));
      const auto pool = only_user(first_output(*nodes_[*next]), at);
      if (!pool || !is_stem_pool(*nodes_[*pool]) || is_written_between(input, at, *pool)) return *next;
      inputs.push_back(given("pool", true));
      nodes_[*next].reset();
      return *pool;
    }
    const std::string& target = nodes_[*next]->target;
    const bool in_place = target == "torch.ops.aten.add_.Tensor";
    if ((!in_place && target != "torch.ops.aten.add.Tensor") || !adds_alike(*nodes_[*next])) return at;
    const auto self = *value_argument(*nodes_[*next], "self"), other = *value_argument(*nodes_[*next], "other");
    if (self == other || (in_place && self != normalised)) return at;
    const ProgramValue residual = self == normalised ? other : self;
    const auto relu = only_user(first_output(*nodes_[*next]), at);
    if (!relu || !is(*relu, "relu", "relu_") || is_written_between(input, at, *relu) ||
        is_written_between(residual, *next, *relu))
      return at;
    inputs.push_back(given("relu", true));
    inputs.push_back(given("residual", residual));
    nodes_[*next].reset();
    return *relu;
  }

  static bool is_stem_pool(const ProgramNode& node) {
    return aten_name(node.target) == "max_pool2d" && same_number(node, "kernel_size", 0) == 3 &&
           same_number(node, "stride", 0) == 2 && same_number(node, "padding", 0) == 1 &&
           same_number(node, "dilation", 1) == 1 && !truth(node, "ceil_mode");
  }

  /// The only node that uses a value, in whatever unit.
  std::optional<size_t> next_of(const ProgramValue& value) const {
    const auto users = users_.find(value.index);
    if (users == users_.end()) return std::nullopt;
    std::set<size_t> nodes(users->second.begin(), users->second.end());
    nodes.erase(kNoNode);
    return nodes.size() == 1 && nodes_[*nodes.begin()] ? std::optional(*nodes.begin()) : std::nullopt;
  }

  std::string head(size_t at) {
    const ProgramNode& node = *nodes_[at];
    const ProgramValue input = *value_argument(node, "self");
    if (same_number(node, "output_size", 0) != 1) return "they keep several values";
    if (tensor_of(input.index) == nullptr || tensor_of(input.index)->sizes.size() != 4) return "they are not of images";
    const auto flat = next_of(first_output(node));
    const bool flattens =
        flat && is(*flat, "flatten") && same_number(*nodes_[*flat], "start_dim", 0) == 1 &&
        (same_number(*nodes_[*flat], "end_dim", -1) == -1 || same_number(*nodes_[*flat], "end_dim", -1) == 3);
    const auto layer = flattens ? next_of(first_output(*nodes_[*flat])) : std::nullopt;
    if (!layer || nodes_[*layer]->target != kLinearLayer) return "no linear layer follows them";
    if (unit_of_[*layer] != unit_of_[at]) return "a unit ends between them and the linear layer";
    if (only_user(first_output(node), at) != flat || only_user(first_output(*nodes_[*flat]), at) != layer)
      return "others use what they return";
    if (is_written_between(input, at, *layer)) return "their input is changed before the linear layer";
    auto inputs = nodes_[*layer]->inputs;
    for (auto& each : inputs)
      if (each.name == "input") each = given("input", input);
    put(*layer, kHeadLayer, std::move(inputs), {one_output(*nodes_[*layer])});
    nodes_[*flat].reset();
    nodes_[at].reset();
    return "";
  }

  ProgramNodes& nodes_;
  const LayerSearch& search_;
  std::vector<size_t> unit_of_;
  std::map<int64_t, size_t> made_by_;
  std::map<int64_t, std::vector<size_t>> users_;  ///< kNoNode: a unit returns it
  std::map<std::string, FoundLayers> result_;
};

}  // namespace

std::map<std::string, FoundLayers> find_layers(ProgramNodes& nodes, const LayerSearch& search) {
  return Finder(nodes, search).found();
}

}  // namespace trainopt
