#include "model/imported/division.h"

#include "base/error.h"
#include "model/imported/aliases.h"
#include "model/program/flops.h"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>

namespace trainopt {
namespace {

constexpr const char* kNothingPassed = "no tensor with a gradient is needed later";

struct Cut {
  ProgramValue passed = {};
  std::string obstacle = {};  ///< empty: the cut is legal
};

class Divider {
 public:
  Divider(ProgramGraph& graph, const DivisionInput& facts) : graph_(graph), facts_(facts), aliases_(graph) {
    const size_t values = graph.values.size(), nodes = graph.nodes.size();
    for (std::vector<size_t>* places : {&born_, &last_use_, &last_write_}) places->assign(values, 0);
    gradient_.assign(values, false);
    for (const int64_t trained : facts.trained) gradient_[set_of(trained)] = true;
    for (size_t at = 0; at < nodes; ++at) follow(at);
    for (const ProgramItem& output : graph.outputs)
      if (const auto* value = std::get_if<ProgramValue>(&output))
        last_use_[static_cast<size_t>(value->index)] = nodes + 1;
  }

  /// The tensor that would be passed on between the nodes before `at` and the others, or why no cut is legal.
  Cut cut_before(size_t at) const {
    ProgramValue passed;
    for (size_t value = 0; value < graph_.values.size(); ++value) {
      const auto index = static_cast<int64_t>(value);
      if (facts_.given.contains(index) || born_[value] > at || last_use_[value] <= at) continue;
      if (gradient_[set_of(index)]) {
        if (passed.index >= 0)
          return {.obstacle = fmt::format("{} and {} are needed later", name_of(passed), graph_.values[value].name)};
        passed.index = index;
      } else if (last_write_[set_of(index)] > at) {
        return {.obstacle = "a value of both sides is changed later"};  // computing again would change it twice
      }
    }
    if (passed.index < 0) return {.obstacle = kNothingPassed};
    if (!begins_with_batch(passed)) return {.obstacle = "the batch is not the first dimension there"};
    if (!may_be_input(passed, at)) return {.obstacle = "the tensor is changed later through a view of it"};
    return {.passed = passed};
  }

  bool has_gradient(const ProgramValue& value) const { return gradient_[set_of(value.index)]; }

  /// Replaces what would change the unit's input in place, or has the unit copy its input.
  void keep_input(NodeRange& unit) {
    unit.copies_input = !may_be_input(unit.input, unit.first);
    if (unit.copies_input) return;
    int64_t now = unit.input.index;
    for (size_t at = unit.first; at < unit.end; ++at) {
      ProgramNode& node = graph_.nodes[at];
      for (auto& input : node.inputs)
        for (ProgramItem& item : input.argument.items)
          if (auto* value = std::get_if<ProgramValue>(&item); value && value->index == unit.input.index)
            value->index = now;
      if (now != unit.input.index || written_values(node) != std::vector<int64_t>{now}) continue;
      become_out_of_place(node);
      now = first_output(node).index;
    }
  }

 private:
  size_t set_of(int64_t value) const { return static_cast<size_t>(aliases_.set_of(value)); }

  void follow(size_t at) {
    const ProgramNode& node = graph_.nodes[at];
    bool with_gradient = false;
    for_each_input(node, [&](int64_t value) {
      last_use_[static_cast<size_t>(value)] = at + 1;
      with_gradient = with_gradient || gradient_[set_of(value)];
    });
    with_gradient = with_gradient && !node.no_gradients && aten_name(node.target) != "detach";
    for (const int64_t written : written_values(node)) {
      last_write_[set_of(written)] = at + 1;
      if (with_gradient) gradient_[set_of(written)] = true;
    }
    for_each_output(node, [&](int64_t value) {
      const auto& tensor = graph_.values[static_cast<size_t>(value)].tensor;
      born_[static_cast<size_t>(value)] = at + 1;
      const bool differentiable = tensor && (!tensor->type || is_floating(*tensor->type));  // or complex
      if (with_gradient && differentiable) gradient_[set_of(value)] = true;
    });
  }

  const std::string& name_of(const ProgramValue& value) const {
    return graph_.values[static_cast<size_t>(value.index)].name;
  }
  const ProgramSize* first_size(const ProgramValue& value) const {
    const auto& tensor = graph_.values[static_cast<size_t>(value.index)].tensor;
    return tensor && !tensor->sizes.empty() ? &tensor->sizes.front() : nullptr;
  }
  bool begins_with_batch(const ProgramValue& value) const {
    const ProgramSize *first = first_size(value), *batch = first_size(facts_.input);
    return first != nullptr && batch != nullptr && std::holds_alternative<std::string>(*batch) && *first == *batch;
  }

  /// Whether no node from `at` on changes `value` in place, or only in a way that keep_input() can replace.
  bool may_be_input(const ProgramValue& value, size_t at) const {
    const size_t set = set_of(value.index);
    bool has_views = false;
    for (; at < graph_.nodes.size(); ++at) {
      const ProgramNode& node = graph_.nodes[at];
      for (const int64_t written : written_values(node))
        if (set_of(written) == set)
          return !has_views && written == value.index && first_output(node).index >= 0 &&
                 !out_of_place(node.target).empty();
      for_each_output(node, [&](int64_t output) { has_views = has_views || set_of(output) == set; });
    }
    return true;
  }

  ProgramGraph& graph_;
  const DivisionInput& facts_;
  AliasSets aliases_;
  std::vector<bool> gradient_;           ///< by alias set: has a gradient, perhaps only in a part of it
  std::vector<size_t> born_, last_use_;  ///< by value: 1 + the node; 0: an input of the graph, or never
  std::vector<size_t> last_write_;       ///< by alias set, as above
};

/// The modules around each node; a node without any has those of the node before.
std::vector<std::vector<std::string>> modules_of(const ProgramGraph& graph) {
  std::vector<std::vector<std::string>> all;
  for (const ProgramNode& node : graph.nodes)
    all.push_back(node.modules.empty() && !all.empty() ? all.back() : node.modules);
  return all;
}

size_t missing_in(const std::vector<std::string>& modules, const std::vector<std::string>& other) {
  return static_cast<size_t>(std::count_if(modules.begin(), modules.end(), [&](const std::string& module) {
    return std::find(other.begin(), other.end(), module) == other.end();
  }));
}

/// With / for dots, so that * in a pattern stands for one part of a name.
std::string as_path(std::string name) {
  std::replace(name.begin(), name.end(), '.', '/');
  return name;
}

struct Place {
  std::string module = {};  ///< empty: of no module in particular
  bool after = false;
};

/// Chooses among the legal cuts.
class Wanted {
 public:
  Wanted(std::string where, const std::vector<std::vector<std::string>>& modules) : where_(std::move(where)) {
    for (const auto& of_node : modules)
      for (size_t i = 0; i < of_node.size(); ++i) {
        if (is_pattern() && matches(of_node[i])) chosen_.insert(of_node[i]);
        if (where_ == "blocks" && i + 1 < of_node.size()) chosen_.insert(of_node[i]);  // it consists of modules
      }
    if (!is_pattern() || !chosen_.empty()) return;
    std::set<std::string> outermost;
    for (const auto& of_node : modules)
      if (!of_node.empty()) outermost.insert(of_node.front());
    throw UserError(fmt::format("model.units: no module's name matches \"{}\"; the outermost modules are {}", where_,
                                fmt::join(outermost, ", ")));
  }

  bool is_pattern() const { return where_ != "layers" && where_ != "blocks"; }
  /// The place between two nodes if a cut is wanted there. `before` and `after`: the modules of the nodes on both
  /// sides.
  std::optional<Place> operator()(const std::vector<std::string>& before, const std::vector<std::string>& after) const {
    if (where_ == "layers") return Place{};
    if (const auto ends = chosen_of(before, after)) return Place{*ends, true};
    if (const auto begins = chosen_of(after, before)) return Place{*begins, false};
    return {};
  }

 private:
  bool matches(const std::string& module) const {
    return ::fnmatch(as_path(where_).c_str(), as_path(module).c_str(), FNM_PATHNAME) == 0;
  }
  /// The outermost of the modules, but not of the others, that is to be a unit.
  std::optional<std::string> chosen_of(const std::vector<std::string>& modules,
                                       const std::vector<std::string>& others) const {
    const auto found = std::find_if(modules.begin(), modules.end(), [&](const std::string& module) {
      return chosen_.contains(module) && missing_in({module}, others) == 1;
    });
    return found == modules.end() ? std::nullopt : std::optional(*found);
  }

  std::string where_;
  std::set<std::string> chosen_;  ///< modules that are to be units
};

/// The innermost module around all nodes of a unit, or around its first one.
std::string name_of(const NodeRange& unit, const std::vector<std::vector<std::string>>& modules) {
  const std::vector<std::string>& first = modules[unit.first];
  for (size_t depth = first.size(); depth-- > 0;) {
    const bool in_all = std::all_of(modules.begin() + static_cast<std::ptrdiff_t>(unit.first),
                                    modules.begin() + static_cast<std::ptrdiff_t>(unit.end),
                                    [&](const auto& of_node) { return missing_in({first[depth]}, of_node) == 0; });
    if (in_all) return first[depth];
  }
  for (size_t at = unit.first; at < unit.end; ++at)
    if (!modules[at].empty()) return modules[at].back();
  return "model";
}

/// Leaves out the places inside of a block, such as before the second branch of a residual block. Many children of one
/// module that cannot be told apart are no block.
void leave_out_parts_of_block(NodeRange& unit) {
  constexpr size_t kMany = 3;
  const std::string within = unit.name + ".";
  std::set<std::string> children;
  const auto is_within = [&](const UncutPlace& place) { return place.module.starts_with(within); };
  for (const UncutPlace& place : unit.uncut)
    if (is_within(place))
      children.insert(place.module.substr(within.size(), place.module.find('.', within.size()) - within.size()));
  if (children.size() < kMany) std::erase_if(unit.uncut, is_within);
}

}  // namespace

std::vector<NodeRange> divide(ProgramGraph& graph, const DivisionInput& facts, const std::string& where) {
  Divider divider(graph, facts);
  const auto modules = modules_of(graph);
  const Wanted wanted(where, modules);
  std::vector<NodeRange> units;
  NodeRange unit{.input = facts.input};
  for (size_t at = 1; at < graph.nodes.size(); ++at) {
    const auto place = wanted(modules[at - 1], modules[at]);
    if (!place) continue;
    const Cut cut = divider.cut_before(at);
    if (cut.obstacle == kNothingPassed) continue;  // what comes before the model's first layer belongs to it
    if (!cut.obstacle.empty()) {
      if (!place->module.empty()) unit.uncut.push_back({place->module, place->after, cut.obstacle});
      continue;
    }
    if (cut.passed == unit.input) continue;  // a unit that returns what it is given is none
    unit.end = at;
    unit.output = cut.passed;
    units.push_back(unit);
    unit = {.first = at, .input = cut.passed};
  }
  unit.end = graph.nodes.size();
  unit.output = std::get<ProgramValue>(graph.outputs.front());
  if (!divider.has_gradient(unit.output))
    throw UserError("what it returns has no gradient: no trained parameter is used, or no_grad or detach cuts it off",
                    ExitCode::checkpoint);
  units.push_back(unit);
  std::set<std::string> names;
  for (NodeRange& each : units) {
    const std::string name = name_of(each, modules);
    each.name = name;
    leave_out_parts_of_block(each);
    for (int more = 2; !names.insert(each.name).second; ++more) each.name = fmt::format("{}#{}", name, more);
    divider.keep_input(each);
  }
  return units;
}

}  // namespace trainopt
