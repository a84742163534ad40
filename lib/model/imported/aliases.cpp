#include "model/imported/aliases.h"

#include "model/program/flops.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <array>
#include <numeric>

namespace trainopt {
namespace {

std::optional<c10::OperatorHandle> find_operation(const std::string& target) {
  const std::string name(aten_name(target));
  std::string overload = target.substr(target.rfind('.') + 1);
  if (overload == "default") overload.clear();
  return name.empty() ? std::nullopt : c10::Dispatcher::singleton().findSchema({"aten::" + name, overload});
}

// These return their input itself, or a view of it, where nothing has to be done; their schemas do not say so.
constexpr std::array kMayBeViews = {"reshape",
                                    "reshape_as",
                                    "contiguous",
                                    "flatten",
                                    "ravel",
                                    "to",
                                    "type_as",
                                    "dropout",
                                    "narrow",
                                    "feature_dropout",
                                    "alpha_dropout",
                                    "_unsafe_view",
                                    "atleast_1d",
                                    "atleast_2d",
                                    "atleast_3d",
                                    "meshgrid",
                                    "broadcast_tensors",
                                    "feature_alpha_dropout",
                                    "native_dropout",
                                    "cdist",
                                    "conj",
                                    "resolve_conj",
                                    "resolve_neg",
                                    "pin_memory"};

template <class Visit>
void for_each_value_of(const ProgramNode& node, const std::string& argument, Visit visit) {
  for (const auto& input : node.inputs)
    if (input.name == argument)
      for (const ProgramItem& item : input.argument.items)
        if (const auto* value = std::get_if<ProgramValue>(&item)) visit(value->index);
}

}  // namespace

std::vector<int64_t> written_values(const ProgramNode& node) {
  std::vector<int64_t> all;
  if (const auto operation = find_operation(node.target))
    for (const c10::Argument& argument : operation->schema().arguments())
      if (argument.alias_info() != nullptr && argument.alias_info()->isWrite())
        for_each_value_of(node, argument.name(), [&](int64_t value) { all.push_back(value); });
  return all;
}

AliasSets::AliasSets(const ProgramGraph& graph) : parent_(graph.values.size()) {
  std::iota(parent_.begin(), parent_.end(), 0);
  for (const ProgramNode& node : graph.nodes) {
    const auto with_outputs = [&](int64_t input) {
      if (!graph.values[static_cast<size_t>(input)].tensor) return;  // a size that reshape() is given
      for_each_output(node, [&](int64_t output) { join(input, output); });
    };
    const std::string_view name = aten_name(node.target);
    if (std::find(kMayBeViews.begin(), kMayBeViews.end(), name) != kMayBeViews.end())
      for_each_input(node, with_outputs);
    else if (const auto operation = find_operation(node.target))
      for (const c10::Argument& argument : operation->schema().arguments())
        if (argument.alias_info() != nullptr) for_each_value_of(node, argument.name(), with_outputs);
  }
}

int64_t AliasSets::set_of(int64_t value) const {
  while (parent_[static_cast<size_t>(value)] != value) value = parent_[static_cast<size_t>(value)];
  return value;
}

void AliasSets::join(int64_t a, int64_t b) { parent_[static_cast<size_t>(set_of(b))] = set_of(a); }

std::string out_of_place(const std::string& target) {
  const size_t underscore = target.rfind("_.");
  if (underscore == std::string::npos) return {};
  std::string other = target;
  other.erase(underscore, 1);
  return find_operation(other) ? other : std::string();
}

void become_out_of_place(ProgramNode& node) {
  const std::string other = out_of_place(node.target);
  const auto &before = find_operation(node.target)->schema().arguments(),
             &after = find_operation(other)->schema().arguments();
  for (auto& input : node.inputs)
    for (size_t i = 0; i < std::min(before.size(), after.size()); ++i)
      if (input.name == before[i].name()) {
        input.name = after[i].name();
        break;
      }
  node.target = other;
  node.keeps_type = true;
}

ProgramValue first_output(const ProgramNode& node) {
  return node.outputs.empty() || node.outputs.front().values.empty() ? ProgramValue{}
                                                                     : node.outputs.front().values.front();
}

}  // namespace trainopt
