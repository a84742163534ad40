#include "model/imported/head.h"

#include "base/error.h"
#include "model/imported/instruction.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace trainopt {
namespace {

/// Operations that may stand between the head and what is returned: they change no size and name none.
constexpr std::array<std::string_view, 6> kPassing = {"dropout", "to", "_to_copy", "clone", "contiguous", "alias"};

/// The node that computes what the program returns, without those that pass it on. Null: there is none. Adds the values
/// on the way to `results`.
const ProgramNode* last_layer(const ProgramGraph& graph, std::vector<int64_t>& results) {
  int64_t value = std::get<ProgramValue>(graph.outputs.front()).index;
  for (size_t at = graph.nodes.size(); at-- > 0;) {
    const ProgramNode& node = graph.nodes[at];
    if (first_output(node).index != value) continue;
    results.push_back(value);
    const std::string_view name = aten_name(node.target);
    if (std::find(kPassing.begin(), kPassing.end(), name) == kPassing.end()) return &node;
    const auto input = value_argument(node, name == "dropout" ? "input" : "self");
    if (!input) return &node;
    value = input->index;
  }
  return nullptr;
}

int64_t uses_of(int64_t value, const ProgramGraph& graph) {
  int64_t uses = 0;
  for (const ProgramNode& node : graph.nodes)
    for_each_input(node, [&](int64_t used) { uses += used == value ? 1 : 0; });
  return uses;
}

}  // namespace

std::optional<ProgramHead> find_head(const ProgramGraph& graph, const std::set<int64_t>& trained,
                                     std::string& why_not) {
  const auto none = [&](std::string why) {
    why_not = std::move(why);
    return std::nullopt;
  };
  ProgramHead head;
  const ProgramNode* last = last_layer(graph, head.results);
  if (last == nullptr) return none("it returns what it was given");
  if (aten_name(last->target) != "linear")
    return none(fmt::format("its last layer is not linear: {} computes what it returns", last->place()));
  const auto weight = value_argument(*last, "weight"), bias = value_argument(*last, "bias");
  for (const auto& value : {weight, bias}) {
    if (value && uses_of(value->index, graph) != 1)
      return none(fmt::format("its last layer, {}, shares a parameter with another", last->place()));
    if (value && !trained.contains(value->index))
      return none(fmt::format("its last layer, {}, is frozen or computed", last->place()));
  }
  const auto& tensor = weight ? graph.values[static_cast<size_t>(weight->index)].tensor : std::nullopt;
  const auto* in = tensor && tensor->sizes.size() == 2 ? std::get_if<int64_t>(&tensor->sizes[1]) : nullptr;
  if (in == nullptr) return none(fmt::format("its last layer, {}, has no matrix of known sizes", last->place()));
  head.weight = weight->index;
  if (bias) head.bias = bias->index;
  head.in = *in;
  return head;
}

void give_classes(const ProgramHead& head, int64_t classes, const std::map<int64_t, std::string>& names,
                  ProgramGraph& graph, Program& program) {
  const auto resize = [&](int64_t value, const std::vector<int64_t>& sizes) {
    auto& tensor = graph.values[static_cast<size_t>(value)].tensor;
    tensor->sizes.assign(sizes.begin(), sizes.end());
    program.replace(names.at(value), sizes);
  };
  resize(head.weight, {classes, head.in});
  if (head.bias) resize(*head.bias, {classes});
  for (const int64_t result : head.results) {
    auto& tensor = graph.values[static_cast<size_t>(result)].tensor;
    if (tensor && !tensor->sizes.empty()) tensor->sizes.back() = classes;
  }
}

}  // namespace trainopt
