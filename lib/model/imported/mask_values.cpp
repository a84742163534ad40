#include "model/imported/mask_values.h"

#include "base/error.h"
#include "device/tensor.h"
#include "model/imported/instruction.h"

#include <ATen/ops/triu.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace trainopt {
namespace {

constexpr int64_t kMostValues = int64_t{1} << 26;  ///< the largest tensor that is computed while planning
constexpr int64_t kMostInAll = int64_t{1} << 29;   ///< the values of all tensors that are computed for a mask
constexpr double kHides = -1e9;                    ///< an added number as low makes a weight 0

/// What may compute a mask. No other operation is run while planning: its result could be of any size.
enum class MaskOperation {
  none,
  creates,     ///< a tensor of sizes that it is given as numbers
  by_element,  ///< an operation by element of tensors that are broadcast
  renames,     ///< its input's values, perhaps repeated or in part
};
MaskOperation mask_operation(std::string_view name) {
  using enum MaskOperation;
  static const std::map<std::string_view, MaskOperation> all = {
      {"arange", creates},         {"full", creates},
      {"ones", creates},           {"zeros", creates},
      {"scalar_tensor", creates},  {"new_ones", creates},
      {"new_zeros", creates},      {"new_full", creates},
      {"ones_like", by_element},   {"zeros_like", by_element},
      {"full_like", by_element},   {"eq", by_element},
      {"ne", by_element},          {"lt", by_element},
      {"le", by_element},          {"gt", by_element},
      {"ge", by_element},          {"logical_not", by_element},
      {"logical_and", by_element}, {"logical_or", by_element},
      {"bitwise_not", by_element}, {"bitwise_and", by_element},
      {"bitwise_or", by_element},  {"__and__", by_element},
      {"__or__", by_element},      {"where", by_element},
      {"masked_fill", by_element}, {"masked_fill_", by_element},
      {"tril", by_element},        {"triu", by_element},
      {"tril_", by_element},       {"triu_", by_element},
      {"add", by_element},         {"sub", by_element},
      {"rsub", by_element},        {"mul", by_element},
      {"mul_", by_element},        {"add_", by_element},
      {"neg", by_element},         {"fill_", by_element},
      {"copy_", by_element},       {"to", by_element},
      {"_to_copy", by_element},    {"clone", by_element},
      {"contiguous", by_element},  {"lift_fresh_copy", by_element},
      {"detach", renames},         {"detach_", renames},
      {"alias", renames},          {"expand", renames},
      {"view", renames},           {"reshape", renames},
      {"_unsafe_view", renames},   {"unsqueeze", renames},
      {"squeeze", renames},        {"slice", renames},
      {"select", renames},         {"transpose", renames},
      {"permute", renames},        {"t", renames}};
  const auto found = all.find(name);
  return found == all.end() ? none : found->second;
}
/// Operations whose results repeat or rename values, whatever the size of the batch.
bool repeats_values(std::string_view name) {
  static const std::set<std::string_view> all = {"expand", "view", "reshape", "_unsafe_view"};
  return all.contains(name);
}

/// Computes a value from constants and sizes.
class ConstantValue {
 public:
  ConstantValue(const LayerView& view, size_t user) : view_(view), user_(user) {}

  /// Undefined: the value depends on more.
  at::Tensor of(int64_t value) {
    need(value);
    ProgramValues values(view_.search().graph.values.size());
    InstructionSite site{.path = {}, .device = at::kCPU, .tensors = {}};
    const at::NoGradGuard no_gradients;
    try {
      for (const size_t at : nodes_)
        if (!run(*view_.nodes()[at], site, values)) return {};
    } catch (const std::exception&) {  // named recovery: an archive may hold anything, and the mask is then not known
      return {};
    }
    const c10::IValue& result = values[index(value)];
    return result.isTensor() ? result.toTensor() : view_.search().constant(value);
  }

 private:
  static size_t index(int64_t value) { return static_cast<size_t>(value); }

  /// Collects the nodes that make or change a value, or what shares its memory.
  void need(int64_t value) {
    const int64_t set = view_.search().aliases.set_of(value);
    if (!sets_.insert(set).second) return;
    for (size_t at = 0; at < user_; ++at) {
      if (!view_.nodes()[at]) continue;
      const ProgramNode& node = *view_.nodes()[at];
      bool concerns = std::ranges::any_of(
          written_values(node), [&](int64_t written) { return view_.search().aliases.set_of(written) == set; });
      for_each_output(node, [&](int64_t made) { concerns |= view_.search().aliases.set_of(made) == set; });
      if (!concerns || !nodes_.insert(at).second) continue;
      if (!reads_a_size(node)) for_each_input(node, [&](int64_t used) { need(used); });
    }
  }

  static bool reads_a_size(const ProgramNode& node) { return aten_name(node.target) == "sym_size"; }

  /// False: the node needs what is not constant.
  bool run(const ProgramNode& node, InstructionSite& site, ProgramValues& values) {
    if (reads_a_size(node)) return read_size(node, values);
    const bool is_number = view_.tensor_of(first_output(node).index) == nullptr && first_output(node).index >= 0;
    if (!is_number && mask_operation(aten_name(node.target)) == MaskOperation::none) return false;
    if (is_number && !node.target.starts_with("_operator.") && !node.target.starts_with("torch.sym_")) return false;
    bool known = true, follows_batch = false;
    for_each_input(node, [&](int64_t used) {
      follows_batch |= of_batch_.contains(used);
      if (!values[index(used)].isNone() || site.tensors.contains(used)) return;
      const at::Tensor constant = view_.search().constant(used);
      known = known && constant.defined();
      if (constant.defined()) site.tensors[used] = constant;
    });
    if (!known || !has_small_result(node, site, values) || (follows_batch && !may_follow_batch(node))) return false;
    if (follows_batch && view_.tensor_of(first_output(node).index) == nullptr)
      for_each_output(node, [&](int64_t made) { of_batch_.insert(made); });
    make_instruction(node, view_.search().graph, site).run(values, {});
    for_each_output(node, [&](int64_t made) {
      if (const c10::IValue& value = values[index(made)]; value.isTensor()) values_in_all_ += value.toTensor().numel();
    });
    return values_in_all_ <= kMostInAll;
  }

  /// Numbers may be computed from the size of the batch; values of tensors must not depend on it.
  bool may_follow_batch(const ProgramNode& node) const {
    return repeats_values(aten_name(node.target)) || view_.tensor_of(first_output(node).index) == nullptr;
  }

  static void broadcast(std::vector<int64_t>& sizes, at::IntArrayRef with) {
    if (with.size() > sizes.size()) sizes.insert(sizes.begin(), with.size() - sizes.size(), 1);
    for (size_t i = 0; i < with.size(); ++i) {
      int64_t& size = sizes[sizes.size() - with.size() + i];
      size = std::max(size, with[i]);
    }
  }

  /// Judged by what the operation is given, whatever the graph says of its result.
  static bool has_small_result(const ProgramNode& node, const InstructionSite& site, const ProgramValues& values) {
    double numbers = 1;
    std::vector<int64_t> sizes;  // the tensors' own, broadcast
    const auto multiply = [&](double number) { numbers *= std::max(1.0, std::abs(number)); };
    for (const auto& input : node.inputs) {
      if (input.name == "fill_value" || input.name == "s") continue;  // what the tensor holds
      for (const ProgramItem& item : input.argument.items) {
        if (const auto* number = std::get_if<int64_t>(&item)) multiply(static_cast<double>(*number));
        if (const auto* number = std::get_if<double>(&item)) multiply(*number);
        const auto* value = std::get_if<ProgramValue>(&item);
        if (value == nullptr) continue;
        const c10::IValue& computed = values[index(value->index)];
        const auto constant = site.tensors.find(value->index);
        if (computed.isInt()) multiply(static_cast<double>(computed.toInt()));
        if (computed.isTensor()) broadcast(sizes, computed.toTensor().sizes());
        if (constant != site.tensors.end()) broadcast(sizes, constant->second.sizes());
      }
    }
    double count = 1;
    if (mask_operation(aten_name(node.target)) == MaskOperation::creates)
      count = numbers;
    else
      for (const int64_t size : sizes) count *= static_cast<double>(std::max<int64_t>(size, 1));
    return count <= static_cast<double>(kMostValues);
  }

  /// For a batch of one sample; a size that follows the batch is remembered.
  bool read_size(const ProgramNode& node, ProgramValues& values) {
    const auto tensor = value_argument(node, "self");
    const ProgramItem* which = constant_argument(node, "dim");
    const auto* dimension = which == nullptr ? nullptr : std::get_if<int64_t>(which);
    const ProgramTensor* known = tensor ? view_.tensor_of(tensor->index) : nullptr;
    if (known == nullptr || dimension == nullptr) return false;
    const int64_t rank = std::ssize(known->sizes), at = *dimension < 0 ? *dimension + rank : *dimension;
    if (at < 0 || at >= rank) return false;
    const ProgramSize& size = known->sizes[static_cast<size_t>(at)];
    const auto number = for_one_sample(size, view_.search().symbols);
    const int64_t made = first_output(node).index;
    if (!number || made < 0) return false;
    values[index(made)] = *number;
    const bool is_fixed = std::holds_alternative<int64_t>(size) || view_.search().symbols.contains(symbol_of(size));
    if (!is_fixed) of_batch_.insert(made);
    return true;
  }

  const LayerView& view_;
  size_t user_;
  std::set<int64_t> sets_;  ///< alias sets that were looked at
  std::set<size_t> nodes_;  ///< what is to be run
  int64_t values_in_all_ = 0;
  std::set<int64_t> of_batch_;  ///< numbers that follow the size of the batch
};

}  // namespace

Hidden hidden_by(const LayerView& view, const ProgramValue& mask, MaskForm form, int64_t tokens, size_t user) {
  at::Tensor hidden = ConstantValue(view, user).of(mask.index);
  if (!hidden.defined() || tokens < 1) return Hidden::unknown;
  if (form == MaskForm::added) {
    const at::Tensor hides = hidden <= kHides;
    if (!hidden.is_floating_point() || !(hides | (hidden == 0)).all().item<bool>()) return Hidden::others;
    hidden = hides;
  } else if (hidden.scalar_type() != at::kBool) {
    return Hidden::others;
  } else if (form == MaskForm::keeps) {
    hidden = hidden.logical_not();
  }
  std::vector<int64_t> sizes = hidden.sizes().vec();
  if (sizes.size() < 2) return Hidden::others;
  for (size_t i = sizes.size() - 2; i < sizes.size(); ++i) {
    if (sizes[i] != 1 && sizes[i] != tokens) return Hidden::others;
    sizes[i] = tokens;
  }
  hidden = hidden.expand(sizes);
  if (!hidden.any().item<bool>()) return Hidden::none;
  const at::Tensor later = at::ones({tokens, tokens}, at::kBool).triu(1);
  return (hidden == later).all().item<bool>() ? Hidden::later : Hidden::others;
}

}  // namespace trainopt
