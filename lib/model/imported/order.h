// In which order the operations of an imported program run, and how long their values live.
#pragma once

#include "model/imported/division.h"
#include "model/imported/instruction.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace trainopt {

/// What a unit runs, in training or in evaluation.
struct UnitProgram {
  /// The last operation, if it computes logits by a linear layer without bias. A slot computes their loss instead.
  struct LanguageHead {
    size_t hidden;  ///< the layer's input, by index
    at::Tensor weight;
    WeightCopy copy;
  };
  std::optional<LanguageHead> language_head = {};

  std::vector<Instruction> instructions;
  size_t values = 0;                  ///< how many the whole program has
  int64_t input = 0, output = 0;      ///< values by index
  std::optional<size_t> target = {};  ///< the target, if the program computes its own loss
  std::optional<size_t> logits = {};  ///< what the last unit returns beside such a loss
  std::vector<int64_t> imports = {},
                       exports = {};  ///< side values that it takes from earlier units, and leaves to later ones
};

/// A side value: the unit that makes it, and the last one that uses it otherwise than as its input.
struct SideValueUse {
  int64_t value;
  size_t made_in, last_used_in;
};

/// Finds the last use of each value, and the side values that units leave to later ones.
class Order {
 public:
  /// `nodes`: of the whole program, null where one is left out. `units`: the ranges, with input and output; it must
  /// outlive this. `given`: parameters, buffers and constants. `values`: how many the program has.
  Order(std::vector<const ProgramNode*> nodes, const std::vector<NodeRange>& units, const std::set<int64_t>& given,
        size_t values);
  /// What a unit runs between `input` and `output`. `of_user`: the program's own input.
  UnitProgram of(size_t unit, ProgramValue input, ProgramValue output, const ProgramValue& of_user,
                 const std::function<Instruction(const ProgramNode&)>& make) const;
  /// What any unit leaves to later ones. The program's own input is made in the first one.
  std::vector<SideValueUse> side_values() const;
  const std::vector<const ProgramNode*>& nodes() const { return nodes_; }

 private:
  bool is_made_in(int64_t value, size_t unit) const;
  /// Whether a later unit uses the value otherwise than as its input.
  bool is_imported_later(int64_t value, size_t unit) const;

  std::vector<const ProgramNode*> nodes_;
  const std::vector<NodeRange>& units_;
  size_t values_;
  std::map<int64_t, size_t> made_in_;
  std::map<std::pair<size_t, int64_t>, size_t> last_use_;  ///< the last node of a unit that uses a value
  std::map<size_t, std::vector<int64_t>> last_of_;         ///< the values that a node is the last to use
  std::map<int64_t, std::set<size_t>> used_in_;
};

}  // namespace trainopt
