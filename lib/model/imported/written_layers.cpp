#include "model/imported/written_layers.h"

#include "base/error.h"
#include "device/tensor.h"
#include "model/imported/found_layers.h"
#include "model/imported/instruction.h"
#include "model/imported/mask_values.h"
#include "model/imported/node_arguments.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace trainopt {
namespace {

using Inputs = std::vector<ProgramNode::Input>;

/// Adds the nodes that a layer stands for, and the values that they take.
void add_written(const LayerView& view, const std::set<size_t>& nodes, Inputs& inputs) {
  auto written = std::make_shared<ProgramGraph>();
  std::set<int64_t> made, taken;
  for (const size_t at : nodes) {
    const ProgramNode& node = *view.nodes()[at];
    for_each_input(node, [&](int64_t value) {
      if (!made.contains(value)) taken.insert(value);
    });
    for_each_output(node, [&](int64_t value) { made.insert(value); });
    written->nodes.push_back(node);
  }
  for (const int64_t value : taken) inputs.push_back(given("", ProgramValue{value}));
  inputs.push_back(given("written", written));
}

/// Puts a layer's node in place of the last of `nodes`, and takes the others away.
void put_for(LayerView& view, const std::set<size_t>& nodes, std::string_view target, Inputs inputs) {
  const size_t last = *nodes.rbegin();
  view.put(last, target, std::move(inputs), {one_output(*view.nodes()[last])});
  for (const size_t at : nodes)
    if (at != last) view.nodes()[at].reset();
}

// Linear layers.

/// Whether a node gives its input other dimensions but keeps the order of its values.
bool folds(const LayerView& view, size_t at) {
  return view.is(at, "view") || view.is(at, "reshape") || view.is(at, "_unsafe_view") || view.is(at, "flatten") ||
         view.is(at, "unflatten");
}

std::vector<ProgramSize> all_but_last(const ProgramTensor& tensor) {
  return {tensor.sizes.begin(), tensor.sizes.end() - (tensor.sizes.empty() ? 0 : 1)};
}

/// The nodes of an addmm with those that fold its input before and unfold its result after it.
std::set<size_t> with_folds(const LayerView& view, size_t at, ProgramValue& input) {
  const auto before = view.maker(input, at);
  const auto after = view.only_user(first_output(*view.nodes()[at]), at);
  if (!before || !after || !folds(view, *before) || !folds(view, *after) || view.only_user(input, at) != at)
    return {at};
  const auto unfolded = value_argument(*view.nodes()[*before], "self");
  const ProgramValue result = first_output(*view.nodes()[*after]);
  if (!unfolded || view.dimensions(unfolded->index) < 3 || view.dimensions(result.index) < 3) return {at};
  const ProgramTensor &whole = *view.tensor_of(unfolded->index), &folded = *view.tensor_of(input.index);
  if (whole.sizes.back() != folded.sizes.back() || all_but_last(whole) != all_but_last(*view.tensor_of(result.index)) ||
      view.is_written_between(*unfolded, *before, *after))
    return {at};
  input = *unfolded;
  return {*before, at, *after};
}

// GELU.

bool computes_by_element(const ProgramNode& node) {
  static const std::set<std::string_view> all = {"add", "sub", "rsub", "mul",    "div",       "pow",
                                                 "neg", "erf", "tanh", "square", "reciprocal"};
  return all.contains(aten_name(node.target)) && LayerView::is_usual(node);
}

/// The operations by element that a value follows from, and what these take: one value, or −1.
struct ByElement {
  std::set<size_t> nodes;
  int64_t input = -1;
  bool is_of_one = true;

  ByElement(const LayerView& view, size_t last) { add(view, last); }
  void add(const LayerView& view, size_t at) {
    if (!nodes.insert(at).second) return;
    for_each_input(*view.nodes()[at], [&](int64_t value) {
      const auto made = view.maker({value}, at);
      if (made && computes_by_element(*view.nodes()[*made])) return add(view, *made);
      is_of_one = is_of_one && (input == -1 || input == value);
      input = value;
    });
  }
};

/// "none" or "tanh", the form of a GELU that the nodes compute; empty: they compute something else.
std::string gelu_form(const LayerView& view, const ByElement& written) {
  constexpr double kSame = 1e-6;  ///< the forms differ by 5e-4
  const ProgramGraph& graph = view.search().graph;
  const at::Tensor x = at::linspace(-6, 6, 241, at::kDouble);
  ProgramValues values(graph.values.size());
  values[static_cast<size_t>(written.input)] = x;
  const InstructionSite site{.path = {}, .device = at::kCPU, .tensors = {}};
  const at::NoGradGuard no_gradients;
  try {
    for (const size_t at : written.nodes) make_instruction(*view.nodes()[at], graph, site).run(values, {});
  } catch (const std::exception&) {  // named recovery: an archive may hold anything, and this is then no GELU
    return {};
  }
  const int64_t last = first_output(*view.nodes()[*written.nodes.rbegin()]).index;
  if (last < 0) return {};
  const at::Tensor y = values[static_cast<size_t>(last)].toTensor();
  for (const char* form : {"none", "tanh"})
    if ((y - at::gelu(x, form)).abs().max().item<double>() < kSame) return form;
  return {};
}

// Attention.

struct Attention {
  ProgramValue query, key, value;
  bool key_is_transposed = false, causal = false;
  double dropout = 0;
  int64_t sharing = 1;  ///< heads of queries that share a head of keys and values
};

Inputs inputs_of(const Attention& found) {
  return {given("query", found.query),       given("key", found.key),
          given("value", found.value),       given("is_causal", found.causal),
          given("dropout_p", found.dropout), given("key_is_transposed", found.key_is_transposed),
          given("sharing", found.sharing)};
}

/// Queries, keys and values are batch × heads × tokens × width, all alike; keys perhaps with the last two exchanged,
/// and with fewer heads, each of which serves `sharing` heads of queries, as do those of values.
bool are_alike(const LayerView& view, const Attention& found) {
  for (const ProgramValue& each : {found.query, found.key, found.value})
    if (view.dimensions(each.index) != 4) return false;
  std::vector<ProgramSize> keys = view.tensor_of(found.key.index)->sizes,
                           values = view.tensor_of(found.value.index)->sizes;
  if (found.key_is_transposed) std::swap(keys[2], keys[3]);
  for (std::vector<ProgramSize>* sizes : {&keys, &values})
    if (auto* heads = std::get_if<int64_t>(&(*sizes)[1])) *heads *= found.sharing;
  return keys == view.tensor_of(found.query.index)->sizes && values == keys;
}

/// How many heads of queries share one of keys; 1 if their numbers are not known.
int64_t sharing_of(const LayerView& view, const Attention& found) {
  const auto heads = [&](const ProgramValue& value) {
    const auto* size =
        view.dimensions(value.index) == 4 ? std::get_if<int64_t>(&view.tensor_of(value.index)->sizes[1]) : nullptr;
    return size != nullptr ? *size : 0;
  };
  const int64_t queries = heads(found.query), keys = heads(found.key);
  return keys > 0 && queries % keys == 0 ? queries / keys : 1;
}

bool is_scale(const LayerView& view, const ProgramValue& query, double scale) {
  constexpr double kSame = 1e-6;
  const auto* width = std::get_if<int64_t>(&view.tensor_of(query.index)->sizes.back());
  return width != nullptr && std::abs(scale * std::sqrt(static_cast<double>(*width)) - 1) < kSame;
}

/// Makes the attention causal if the mask hides later tokens. Returns why it is no such mask.
std::string apply_mask(const LayerView& view, const ProgramValue& mask, MaskForm form, size_t user, Attention& found) {
  const ProgramSize& size = view.tensor_of(found.query.index)->sizes[2];
  const auto tokens = for_one_sample(size, view.search().symbols);
  switch (hidden_by(view, mask, form, tokens.value_or(0), user)) {
    case Hidden::none:
      return "";
    case Hidden::later:
      found.causal = true;
      return "";
    case Hidden::others:
      return "they have a mask that is not causal";
    case Hidden::unknown:
      return "their mask depends on more than the number of tokens";
  }
  return "";
}

/// An attention written out: from the scores' product to the values'.
class WrittenAttention {
 public:
  WrittenAttention(LayerView& view, size_t softmax) : view_(view), softmax_(softmax), nodes_{softmax} {}

  std::string put() {
    if (!find_values())
      return is_batched_ && follows_product() ? "their heads are not a dimension of their own"
                                              : std::string(kOtherLayer);
    if (!find_scores())
      return follows_product() ? "they scale or mask their scores in another way" : std::string(kOtherLayer);
    if (!are_alike(view_, found_)) return "their queries, keys and values differ in shape";
    take_scaled_query();
    if (!is_scale(view_, found_.query, scale_)) return "their scale is not 1/√(head width)";
    if (mask_)
      if (std::string why = apply_mask(view_, *mask_, form_, mask_user_, found_); !why.empty()) return why;
    const size_t last = *nodes_.rbegin(), first = *nodes_.begin();
    if (!view_.same_sizes(first_output(node(last)).index, found_.query.index)) return "their mask adds dimensions";
    Inputs inputs = inputs_of(found_);
    add_written(view_, nodes_, inputs);
    for (const auto& input : inputs)
      if (const auto* taken = std::get_if<ProgramValue>(&input.argument.items.front()))
        if (view_.is_written_between(*taken, first, last)) return "what they compute with is changed meanwhile";
    put_for(view_, nodes_, kAttentionLayer, std::move(inputs));
    return "";
  }

 private:
  const ProgramNode& node(size_t at) const { return *view_.nodes()[at]; }
  bool is_over_last_dimension() const {
    const auto dimension = same_number(node(softmax_), "dim", 0);
    return dimension == -1 || dimension == 3;
  }
  bool scales(size_t at) const {
    return view_.is(at, "mul") || (view_.is(at, "div") && is_none(node(at), "rounding_mode"));
  }
  /// Whether a node returns what it is given, in the type that it has.
  bool passes_on(size_t at) const {
    const auto input = value_argument(node(at), "self");
    return (view_.is(at, "to") || view_.is(at, "contiguous") || view_.is(at, "_to_copy") || view_.is(at, "clone")) &&
           input && view_.tensor_of(input->index) != nullptr &&
           view_.tensor_of(first_output(node(at)).index) != nullptr &&
           view_.tensor_of(input->index)->type == view_.tensor_of(first_output(node(at)).index)->type;
  }

  /// Whether a product is within a few operations before the softmax.
  bool follows_product() const {
    ProgramValue value = *value_argument(node(softmax_), "self");
    for (int step = 0; step < 6; ++step) {
      const auto made = view_.maker(value, softmax_);
      if (!made) return false;
      if (view_.is(*made, "matmul") || view_.is(*made, "bmm") || view_.is(*made, "baddbmm")) return true;
      const auto self = value_argument(node(*made), "self");
      if (!self) return false;
      value = *self;
    }
    return false;
  }

  /// Goes from the softmax back to the product of queries and keys.
  bool find_scores() {
    if (!is_over_last_dimension()) return false;
    ProgramValue scores = *value_argument(node(softmax_), "self");
    size_t user = softmax_;
    for (int step = 0; step < 5; ++step) {
      const auto made = view_.maker(scores, softmax_);
      if (!made || view_.only_user(scores, softmax_) != user) return false;
      nodes_.insert(*made);
      user = *made;
      if (view_.is(*made, "matmul")) {
        const auto query = value_argument(node(*made), "self"), key = value_argument(node(*made), "other");
        if (!query || !key) return false;
        found_.query = *query, found_.key = *key, found_.key_is_transposed = true;
        product_ = *made;
        return true;
      }
      const auto before = scores_before(*made);
      if (before.index < 0) return false;
      scores = before;
    }
    return false;
  }

  /// The scores that a node scales, masks or passes on; index −1: it does something else.
  ProgramValue scores_before(size_t at) {
    const auto self = value_argument(node(at), "self"), other = value_argument(node(at), "other");
    const auto number = real_number(node(at), "other");
    if (!self) return {};
    if (passes_on(at)) return *self;
    if (number && scales(at)) {
      scale_ *= view_.is(at, "mul") ? *number : 1 / *number;
      return *self;
    }
    const auto value = real_number(node(at), "value");
    const bool hides = value && *value <= -1e9;
    const auto mask = value_argument(node(at), "mask");
    if (view_.is(at, "masked_fill") && hides && mask) return masked(at, *mask, MaskForm::hides, *self);
    if (view_.is(at, "add") && other && !mask_ && real_number(node(at), "alpha").value_or(1) == 1)
      return masked(at, *other, MaskForm::added, *self);
    return {};
  }
  ProgramValue masked(size_t at, const ProgramValue& mask, MaskForm form, const ProgramValue& scores) {
    if (mask_) return {};
    mask_ = mask, form_ = form, mask_user_ = at;
    return scores;
  }

  /// Goes from the softmax on to the product with the values.
  bool find_values() {
    ProgramValue weights = first_output(node(softmax_));
    for (int step = 0; step < 4; ++step) {
      const auto next = view_.only_user(weights, softmax_);
      if (!next) return false;
      nodes_.insert(*next);
      if (view_.is(*next, "matmul")) {
        const auto value = value_argument(node(*next), "other");
        if (!value || value_argument(node(*next), "self") != weights) return false;
        found_.value = *value;
        return true;
      }
      is_batched_ = is_batched_ || view_.is(*next, "bmm");
      if (view_.is(*next, "dropout")) {
        const auto rate = real_number(node(*next), "p");
        if (!rate || found_.dropout != 0) return false;
        if (truth(node(*next), "train")) found_.dropout = *rate;
      } else if (!passes_on(*next)) {
        return false;
      }
      weights = first_output(node(*next));
    }
    return false;
  }

  /// If the queries were scaled before the product, takes them as they were.
  void take_scaled_query() {
    const auto made = view_.maker(found_.query, softmax_);
    if (!made || !scales(*made)) return;
    const auto number = real_number(node(*made), "other");
    const auto query = value_argument(node(*made), "self");
    if (!number || !query || !view_.same_sizes(query->index, found_.query.index)) return;
    if (view_.only_user(found_.query, softmax_) == product_) nodes_.insert(*made);
    scale_ *= view_.is(*made, "mul") ? *number : 1 / *number;
    found_.query = *query;
  }

  LayerView& view_;
  size_t softmax_, product_ = 0, mask_user_ = 0;
  std::set<size_t> nodes_;
  Attention found_;
  double scale_ = 1;
  std::optional<ProgramValue> mask_;
  MaskForm form_ = MaskForm::added;
  bool is_batched_ = false;  ///< the product with the values is bmm
};

}  // namespace

std::string linear_of_addmm(LayerView& view, size_t at) {
  const ProgramNode& node = *view.nodes()[at];
  const auto weight = view.stored(node, "mat2"), bias = view.stored(node, "self");
  const auto input = value_argument(node, "mat1");
  if (!weight || !bias || view.dimensions(bias->index) != 1) return "their weights are computed";
  if (!input || view.tensor_of(input->index) == nullptr) return "their input or result is no tensor";
  if (real_number(node, "beta").value_or(1) != 1 || real_number(node, "alpha").value_or(1) != 1)
    return "they are scaled";
  ProgramValue whole = *input;
  const std::set<size_t> nodes = with_folds(view, at, whole);
  put_for(view, nodes, kLinearLayer,
          {given("input", whole), given("weight", *weight), given("bias", *bias), given("transposed", true)});
  return "";
}

std::string written_gelu(LayerView& view, size_t at) {
  if (!computes_by_element(*view.nodes()[at])) return std::string(kOtherLayer);
  size_t last = at;
  for (int step = 0; step < 4; ++step) {
    const auto next = view.only_user(first_output(*view.nodes()[last]), at);
    if (!next || !computes_by_element(*view.nodes()[*next])) return std::string(kOtherLayer);
    last = *next;
    const ByElement written(view, last);
    const std::string form = written.is_of_one && written.input >= 0 ? gelu_form(view, written) : "";
    if (form.empty()) continue;
    const ProgramValue input{written.input};
    const auto before = view.maker(input, at);
    if (!before || view.nodes()[*before]->target != kLinearLayer ||
        argument_of(*view.nodes()[*before], "bias") == nullptr)
      return "no linear layer with a bias is before them";
    const auto is_theirs = [&](int64_t value) {
      return std::ranges::all_of(view.users(value), [&](size_t user) { return written.nodes.contains(user); });
    };
    bool others = !is_theirs(input.index);
    for (const size_t each : written.nodes)
      if (each != last) others |= !is_theirs(first_output(*view.nodes()[each]).index);
    if (others || view.is_written_between(*value_argument(*view.nodes()[*before], "input"), *before, last))
      return "others use what is computed within them";
    Inputs inputs = view.nodes()[*before]->inputs;
    inputs.push_back(given("approximate", form));
    inputs.push_back(given("is_cast", view.is_cast(first_output(*view.nodes()[last]).index)));
    std::set<size_t> nodes = written.nodes;
    nodes.insert(*before);
    add_written(view, nodes, inputs);
    put_for(view, nodes, kLinearGeluLayer, std::move(inputs));
    return "";
  }
  return std::string(kOtherLayer);
}

std::string attention(LayerView& view, size_t at) {
  const ProgramNode& node = *view.nodes()[at];
  Attention found{.query = *value_argument(node, "query"),
                  .key = *value_argument(node, "key"),
                  .value = *value_argument(node, "value"),
                  .causal = truth(node, "is_causal")};
  if (truth(node, "enable_gqa")) found.sharing = sharing_of(view, found);
  if (!are_alike(view, found)) return "their queries, keys and values differ in shape";
  const auto scale = real_number(node, "scale"), rate = real_number(node, "dropout_p");
  if ((!scale && !is_none(node, "scale")) || (!rate && !is_none(node, "dropout_p")))
    return "their scale or dropout is computed";
  if (scale && !is_scale(view, found.query, *scale)) return "their scale is not 1/√(head width)";
  found.dropout = rate.value_or(0);
  const auto mask = value_argument(node, "attn_mask");
  if (!mask && !is_none(node, "attn_mask")) return "they have a mask";
  if (!mask && found.sharing == 1) {
    put_for(view, {at}, kAttentionLayer, inputs_of(found));
    return "";
  }
  if (mask) {
    const ProgramTensor* tensor = view.tensor_of(mask->index);
    const bool is_added = tensor != nullptr && tensor->type && is_floating(*tensor->type);
    if (!view.same_sizes(first_output(node).index, found.query.index)) return "their mask adds dimensions";
    if (std::string why = apply_mask(view, *mask, is_added ? MaskForm::added : MaskForm::keeps, at, found);
        !why.empty())
      return why;
  }
  Inputs inputs = inputs_of(found);
  inputs.push_back(given("is_libtorchs", true));
  add_written(view, {at}, inputs);
  put_for(view, {at}, kAttentionLayer, std::move(inputs));
  return "";
}

std::string written_attention(LayerView& view, size_t at) { return WrittenAttention(view, at).put(); }

}  // namespace trainopt
