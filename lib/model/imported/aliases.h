// Which values of a program share memory, and which operations write to it. Taken from the operations' schemas.
#pragma once

#include "model/program/program.h"

#include <string>
#include <vector>

namespace trainopt {

/// The values that the node writes to: in place, or as `out`. Not the statistics of batch-norm, which no schema names.
std::vector<int64_t> written_values(const ProgramNode& node);

/// Values that share memory, or may share it.
class AliasSets {
 public:
  explicit AliasSets(const ProgramGraph& graph);
  /// Returns the same number for all values of a set: one of them.
  int64_t set_of(int64_t value) const;

 private:
  void join(int64_t a, int64_t b);

  std::vector<int64_t> parent_;
};

/// Returns the same operation out of place: "torch.ops.aten.relu.default" for relu_. Empty: there is none.
std::string out_of_place(const std::string& target);
/// Makes it that operation, whose arguments may have other names.
void become_out_of_place(ProgramNode& node);

/// The first value that a node computes; index −1: it computes none that is used.
ProgramValue first_output(const ProgramNode& node);

template <class Visit>
void for_each_input(const ProgramNode& node, Visit visit) {
  for (const auto& input : node.inputs)
    for (const ProgramItem& item : input.argument.items)
      if (const auto* value = std::get_if<ProgramValue>(&item)) visit(value->index);
}
template <class Visit>
void for_each_output(const ProgramNode& node, Visit visit) {
  for (const auto& output : node.outputs)
    for (const ProgramValue& value : output.values)
      if (value.index >= 0) visit(value.index);
}

}  // namespace trainopt
