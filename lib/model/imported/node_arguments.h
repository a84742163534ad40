// Reads and writes the arguments of a program's nodes.
#pragma once

#include "model/imported/instruction.h"
#include "model/program/program.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

/// Null: the node has no argument of this name.
const ProgramArgument* argument_of(const ProgramNode& node, std::string_view name);
/// Whole numbers: one for all dimensions, or one for each. Empty: the argument is absent or something else.
std::vector<int64_t> numbers_of(const ProgramNode& node, std::string_view name);
/// The number that a list of equal ones repeats; `otherwise` if it is absent; null if they differ.
std::optional<int64_t> same_number(const ProgramNode& node, std::string_view name, int64_t otherwise);
/// Null: the argument is absent, computed or no number.
std::optional<double> real_number(const ProgramNode& node, std::string_view name);
/// Whether the argument is the constant True.
bool truth(const ProgramNode& node, std::string_view name);
/// Whether the argument is absent or None.
bool is_none(const ProgramNode& node, std::string_view name);

/// An input of one item.
ProgramNode::Input given(std::string_view name, ProgramItem item);
/// The first output alone.
ProgramNode::Output one_output(const ProgramNode& node);

}  // namespace trainopt
