#include "model/imported/node_arguments.h"

#include "model/imported/aliases.h"

#include <algorithm>

namespace trainopt {

const ProgramArgument* argument_of(const ProgramNode& node, std::string_view name) {
  for (const auto& input : node.inputs)
    if (input.name == name) return &input.argument;
  return nullptr;
}

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

}  // namespace trainopt
