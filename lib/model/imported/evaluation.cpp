#include "model/imported/evaluation.h"

#include "model/imported/aliases.h"
#include "model/imported/instruction.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

namespace trainopt {
namespace {

/// What an operation becomes in evaluation.
enum class Change {
  identity,  ///< passes its first input on
  flag_off,  ///< the argument named in the row is false or 0
};
struct Row {
  std::string_view name;
  Change change;
  std::string_view argument = {};
  std::string_view only_with = {};  ///< changes only if this argument is given: statistics to use instead
};
constexpr std::array kTable = {
    Row{"dropout", Change::identity},
    Row{"dropout_", Change::identity},
    Row{"feature_dropout", Change::identity},
    Row{"feature_dropout_", Change::identity},
    Row{"alpha_dropout", Change::identity},
    Row{"alpha_dropout_", Change::identity},
    Row{"feature_alpha_dropout", Change::identity},
    Row{"feature_alpha_dropout_", Change::identity},
    Row{"scaled_dot_product_attention", Change::flag_off, "dropout_p"},
    Row{"batch_norm", Change::flag_off, "training", "running_mean"},
    Row{"instance_norm", Change::flag_off, "use_input_stats", "running_mean"},
    Row{"lstm", Change::flag_off, "train"},
    Row{"gru", Change::flag_off, "train"},
    Row{"rnn_tanh", Change::flag_off, "train"},
    Row{"rnn_relu", Change::flag_off, "train"},
    Row{"rrelu", Change::flag_off, "training"},
    Row{"rrelu_", Change::flag_off, "training"},
};

class Turn {
 public:
  Turn(const ProgramGraph& graph, const std::map<int64_t, std::string>& names)
      : graph_(graph), names_(names), aliases_(graph) {
    result_.same_as.resize(graph.values.size());
    std::iota(result_.same_as.begin(), result_.same_as.end(), 0);
  }

  EvaluationNodes result() {
    for (const ProgramNode& node : graph_.nodes) result_.nodes.push_back(turned(node));
    for (const auto& node : result_.nodes) {
      if (!node || !result_.problem.empty()) continue;
      const std::string where = node->place();
      if (draws(*node) || uses_noise(*node))
        result_.problem = where + " draws random numbers in evaluation too";
      else if (const auto changed = changed_state(*node))
        result_.problem = fmt::format("{} changes {} in evaluation too", where, *changed);
    }
    return std::move(result_);
  }

 private:
  std::optional<ProgramNode> turned(ProgramNode node) {
    for (auto& input : node.inputs)
      for (ProgramItem& item : input.argument.items)
        if (auto* value = std::get_if<ProgramValue>(&item)) value->index = result_.same_as[index(*value)];
    if (counts_batches(node) || is_noise(node) || applies_noise(node)) return std::nullopt;
    const std::string_view name = aten_name(node.target);
    const auto row = std::find_if(kTable.begin(), kTable.end(), [&](const Row& each) { return each.name == name; });
    if (row == kTable.end()) return node;
    if (row->change == Change::identity) {
      if (const auto input = value_argument(node, "input")) return passed_on(node, *input);
      if (const auto input = value_argument(node, "self")) return passed_on(node, *input);
      return node;
    }
    if (!row->only_with.empty() && !value_argument(node, row->only_with)) return node;
    for (auto& input : node.inputs)
      if (input.name == row->argument) {
        ProgramItem& item = input.argument.items.front();
        item = std::holds_alternative<bool>(item) ? ProgramItem(false) : ProgramItem(0.0);
      }
    return node;
  }

  std::optional<ProgramNode> passed_on(const ProgramNode& node, const ProgramValue& input) {
    if (const ProgramValue output = first_output(node); output.index >= 0) result_.same_as[index(output)] = input.index;
    return std::nullopt;
  }

  /// The parameter or buffer that the node writes to, perhaps through a view of it.
  std::optional<std::string> changed_state(const ProgramNode& node) const {
    for (const int64_t written : written_values(node))
      for (const auto& [value, name] : names_)
        if (aliases_.set_of(value) == aliases_.set_of(written)) return name;
    return std::nullopt;
  }

  /// Batch-norm's count of batches.
  bool counts_batches(const ProgramNode& node) {
    const auto self = value_argument(node, "self");
    if (aten_name(node.target) != "add_" || !self) return false;
    const auto name = names_.find(self->index);
    if (name == names_.end() || !name->second.ends_with("num_batches_tracked")) return false;
    passed_on(node, *self);
    return true;
  }

  /// A step of new_empty → bernoulli_ → div_, the noise of stochastic depth.
  bool is_noise(const ProgramNode& node) {
    const std::string_view name = aten_name(node.target);
    const auto self = value_argument(node, "self");
    const bool begins = name == "empty" || name == "new_empty" || name == "empty_like";
    const bool goes_on = (name == "bernoulli_" || name == "div_") && self && noise_.contains(self->index);
    if (!(begins && feeds_bernoulli(node)) && !goes_on) return is_floored_noise(node);
    noise_.insert(first_output(node).index);
    return true;
  }

  /// A step of rand → add → floor, the same noise in Hugging Face's words: floor(draw in [0, 1) + share that is kept).
  bool is_floored_noise(const ProgramNode& node) {
    const std::string_view name = aten_name(node.target);
    const auto self = value_argument(node, "self");
    std::optional<double> kept;
    if (name == "rand")
      kept = kept_by(node);
    else if (self && kept_.contains(self->index) && (name == "add" || name == "floor" || name == "floor_"))
      kept = kept_.at(self->index);
    if (!kept) return false;
    kept_[first_output(node).index] = *kept;
    noise_.insert(first_output(node).index);
    return true;
  }

  /// The share of samples that these draws keep; null if they are used otherwise.
  std::optional<double> kept_by(const ProgramNode& drawn) const {
    const ProgramNode *sum = only_user(drawn), *floored = sum != nullptr ? only_user(*sum) : nullptr;
    if (floored == nullptr || aten_name(sum->target) != "add") return std::nullopt;
    if (aten_name(floored->target) != "floor" && aten_name(floored->target) != "floor_") return std::nullopt;
    return number(*sum, "other");
  }

  const ProgramNode* only_user(const ProgramNode& made) const {
    const ProgramNode* user = nullptr;
    for (const ProgramNode& node : graph_.nodes)
      for_each_input(node, [&](int64_t value) {
        if (value == first_output(made).index) user = user == nullptr ? &node : &made;
      });
    return user == &made ? nullptr : user;
  }

  static std::optional<double> number(const ProgramNode& node, std::string_view argument) {
    const ProgramItem* item = constant_argument(node, argument);
    const double* value = item != nullptr ? std::get_if<double>(item) : nullptr;
    return value != nullptr ? std::optional(*value) : std::nullopt;
  }

  /// What was divided by this share, if the value was.
  std::optional<ProgramValue> before_scaling(const ProgramValue& value, double kept) const {
    for (const ProgramNode& node : graph_.nodes)
      if (first_output(node) == value && aten_name(node.target) == "div" && number(node, "other") == kept)
        return value_argument(node, "self");
    return std::nullopt;
  }

  /// Whether a new tensor is only there to be filled with draws.
  bool feeds_bernoulli(const ProgramNode& node) const {
    const ProgramValue made = first_output(node);
    return made.index >= 0 && std::any_of(graph_.nodes.begin(), graph_.nodes.end(), [&](const ProgramNode& other) {
             const auto self = value_argument(other, "self");
             return aten_name(other.target) == "bernoulli_" && self && *self == made;
           });
  }

  bool applies_noise(const ProgramNode& node) {
    const std::string_view name = aten_name(node.target);
    const auto self = value_argument(node, "self"), other = value_argument(node, "other");
    if ((name != "mul" && name != "mul_") || !self || !other) return false;
    const bool of_self = noise_.contains(self->index), of_other = noise_.contains(other->index);
    if (of_self == of_other) return false;
    ProgramValue kept = of_self ? *other : *self;
    if (const auto share = kept_.find(of_self ? self->index : other->index); share != kept_.end()) {
      const auto unscaled = before_scaling(kept, share->second);
      if (!unscaled) return false;
      kept.index = result_.same_as[index(*unscaled)];
    }
    passed_on(node, kept);
    return true;
  }

  bool uses_noise(const ProgramNode& node) const {
    for (const auto& input : node.inputs)
      for (const ProgramItem& item : input.argument.items)
        if (const auto* value = std::get_if<ProgramValue>(&item); value && noise_.contains(value->index)) return true;
    return false;
  }

  static size_t index(const ProgramValue& value) { return static_cast<size_t>(value.index); }

  const ProgramGraph& graph_;
  const std::map<int64_t, std::string>& names_;
  AliasSets aliases_;
  EvaluationNodes result_;
  std::set<int64_t> noise_;
  std::map<int64_t, double> kept_;  ///< for noise that is floored: the share of samples that it keeps
};

}  // namespace

EvaluationNodes evaluation_nodes(const ProgramGraph& graph, const std::map<int64_t, std::string>& names) {
  return Turn(graph, names).result();
}

}  // namespace trainopt
