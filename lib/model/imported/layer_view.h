// What finders of layers ask a program's nodes, and how they replace them.
#pragma once

#include "model/imported/aliases.h"
#include "model/imported/division.h"
#include "model/program/flops.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

inline constexpr size_t kNoNode = std::numeric_limits<size_t>::max();

/// A program's nodes; null where one is left out.
using ProgramNodes = std::vector<std::optional<ProgramNode>>;

struct LayerSearch {
  const ProgramGraph& graph;
  const AliasSets& aliases;
  const std::map<int64_t, std::string>& names;  ///< parameters, buffers and constants, by the value's index
  const std::vector<NodeRange>& units;          ///< a layer lies within one
  bool training = true;                         ///< whether the nodes are those of training
  /// The values of a given tensor that nothing changes, in the CPU's memory; undefined for others.
  std::function<at::Tensor(int64_t value)> constant = [](int64_t) { return at::Tensor(); };
  SymbolValues symbols = {};  ///< the tokens, if their number is free
};

class LayerView {
 public:
  /// Both must outlive this.
  LayerView(ProgramNodes& nodes, const LayerSearch& search);

  /// Call it when nodes have been put or taken away.
  void index();

  ProgramNodes& nodes() { return nodes_; }
  const ProgramNodes& nodes() const { return nodes_; }
  const LayerSearch& search() const { return search_; }

  /// Null: the value is no tensor.
  const ProgramTensor* tensor_of(int64_t value) const;
  /// How many dimensions; 0 if the value is no tensor.
  size_t dimensions(int64_t value) const;
  bool same_sizes(int64_t a, int64_t b) const;
  /// The stored tensor that is an argument; null if it is absent or computed.
  std::optional<ProgramValue> stored(const ProgramNode& node, std::string_view name) const;

  /// The unit of a node; kNoNode: none.
  size_t unit_of(size_t at) const { return unit_of_[at]; }
  /// The nodes that use a value, and kNoNode if a unit returns it.
  const std::vector<size_t>& users(int64_t value) const;
  /// The node that makes a value, in whatever unit; kNoNode: it is given.
  size_t made_at(int64_t value) const;
  /// The only node that uses a value, in whatever unit; kNoNode: there is none or there are several.
  size_t next_of(const ProgramValue& value) const;
  /// The only node that uses a value, if it is in the unit of `at`.
  std::optional<size_t> only_user(const ProgramValue& value, size_t at) const;
  /// The node that makes a value, if it is in the unit of `at`.
  std::optional<size_t> maker(const ProgramValue& value, size_t at) const;
  /// Whether another node of the unit uses a value, or what shares its memory.
  bool is_used_beside(const ProgramValue& value, size_t of) const;
  /// Whether a node between these two, both left out, changes a value.
  bool is_written_between(const ProgramValue& value, size_t first, size_t last) const;
  /// Whether all that uses a value computes in 16 bits under autocast, so that its own type there does not matter.
  bool is_cast(int64_t value) const;
  bool is(size_t at, std::string_view name, std::string_view in_place = "") const;
  /// Whether it runs with gradients and autocast like the step around it.
  static bool is_usual(const ProgramNode& node) { return !node.no_gradients && !node.no_autocast && !node.keeps_type; }

  void put(size_t at, std::string_view target, std::vector<ProgramNode::Input> inputs,
           std::vector<ProgramNode::Output> outputs);

 private:
  ProgramNodes& nodes_;
  const LayerSearch& search_;
  std::vector<size_t> unit_of_;
  std::map<int64_t, size_t> made_by_;
  std::map<int64_t, std::vector<size_t>> users_;
};

}  // namespace trainopt
