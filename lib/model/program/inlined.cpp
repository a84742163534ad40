#include "model/program/inlined.h"

#include "base/error.h"

#include <algorithm>
#include <array>

namespace trainopt {
namespace {

constexpr std::string_view kSetGradients = "torch.ops.higher_order.wrap_with_set_grad_enabled",
                           kAutocast = "torch.ops.higher_order.wrap_with_autocast";
// What export asserted holds for every step: sizes do not change.
constexpr std::array kChecks = {"torch.ops.aten._assert_tensor_metadata.default",
                                "torch.ops.aten._assert_scalar.default", "torch.ops.aten._assert_async.msg",
                                "torch.ops.aten.sym_constrain_range.default",
                                "torch.ops.aten.sym_constrain_range_for_size.default"};

struct Region {
  bool no_gradients = false, no_autocast = false;
};

class Inliner {
 public:
  ProgramGraph of(const ProgramGraph& graph) {
    Places places;
    for (const ProgramValue& input : graph.inputs) {
      places[input.index] = added(graph, input);
      whole_.inputs.push_back(std::get<ProgramValue>(places[input.index]));
    }
    add(graph, places, {});
    for (const ProgramItem& output : graph.outputs) whole_.outputs.push_back(moved(output, places));
    return std::move(whole_);
  }

 private:
  /// What stands for each value of a graph: a value of the whole graph, or a constant argument.
  using Places = std::map<int64_t, ProgramItem>;

  ProgramValue added(const ProgramGraph& from, const ProgramValue& value) {
    whole_.values.push_back(from.values[static_cast<size_t>(value.index)]);
    return {static_cast<int64_t>(whole_.values.size()) - 1};
  }

  static ProgramItem moved(const ProgramItem& item, const Places& places) {
    const auto* value = std::get_if<ProgramValue>(&item);
    if (value == nullptr) return item;
    const auto place = places.find(value->index);
    if (place == places.end()) throw UserError("it uses the result of a check of sizes", ExitCode::checkpoint);
    return place->second;
  }

  void add(const ProgramGraph& graph, Places& places, const Region& region) {
    for (const ProgramNode& node : graph.nodes) {
      if (std::find(kChecks.begin(), kChecks.end(), node.target) != kChecks.end()) continue;
      if (node.target == kSetGradients || node.target == kAutocast)
        add_region(node, places, region);
      else
        add_node(graph, node, places, region);
    }
  }

  void add_node(const ProgramGraph& graph, const ProgramNode& node, Places& places, const Region& region) {
    ProgramNode copy = node;
    // In another memory format a view may be impossible; reshape() is the same wherever it is not.
    if (copy.target == "torch.ops.aten.view.default") {
      copy.target = "torch.ops.aten.reshape.default";
      for (auto& input : copy.inputs)
        if (input.name == "size") input.name = "shape";
    }
    copy.no_gradients = region.no_gradients;
    copy.no_autocast = region.no_autocast;
    for (auto& input : copy.inputs)
      for (ProgramItem& item : input.argument.items) item = moved(item, places);
    for (auto& output : copy.outputs)
      for (ProgramValue& value : output.values) {
        if (value.index < 0) continue;
        const int64_t old = value.index;
        value = added(graph, value);
        places[old] = value;
      }
    whole_.nodes.push_back(std::move(copy));
  }

  /// Inputs of the node: its settings, the graph, then what the graph is given.
  void add_region(const ProgramNode& node, Places& places, Region region) {
    std::shared_ptr<ProgramGraph> body;
    std::vector<bool> switches;
    std::vector<ProgramItem> given;
    for (const auto& input : node.inputs)
      for (const ProgramItem& item : input.argument.items) {
        if (const auto* sub = std::get_if<std::shared_ptr<ProgramGraph>>(&item))
          body = *sub;
        else if (body)
          given.push_back(moved(item, places));
        else if (const auto* truth = std::get_if<bool>(&item))
          switches.push_back(*truth);
      }
    if (!body || switches.empty() || given.size() != body->inputs.size())
      throw UserError(fmt::format("its {} is not as torch.export writes it", node.target), ExitCode::checkpoint);
    if (node.target == kSetGradients) {
      region.no_gradients = !switches.front();
    } else if (switches.front()) {
      throw UserError(
          "it was exported under torch.autocast; export it without, and choose mixed precision in the recipe",
          ExitCode::checkpoint);
    } else {
      region.no_autocast = true;
    }
    Places inside;
    for (size_t i = 0; i < given.size(); ++i) inside[body->inputs[i].index] = given[i];
    add(*body, inside, region);
    size_t next = 0;
    for (const auto& output : node.outputs)
      for (const ProgramValue& value : output.values) {
        if (next >= body->outputs.size()) throw UserError("a graph within it returns too little", ExitCode::checkpoint);
        const ProgramItem result = moved(body->outputs[next++], inside);
        if (value.index >= 0) places[value.index] = result;
      }
  }

  ProgramGraph whole_;
};

}  // namespace

ProgramGraph inlined(const ProgramGraph& graph) { return Inliner().of(graph); }

}  // namespace trainopt
