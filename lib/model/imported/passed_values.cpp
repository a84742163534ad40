#include "model/imported/passed_values.h"

#include "base/error.h"
#include "device/tensor.h"
#include "model/imported/instruction.h"
#include "model/program/flops.h"

#include <map>
#include <memory>
#include <optional>
#include <set>

namespace trainopt {
namespace {

/// The numbers that follow from sizes: which operations compute them, in their order.
struct Computed {
  std::vector<Instruction> instructions;
  std::map<int64_t, std::vector<ProgramSize>> tensors;  ///< those whose sizes they read
  std::set<int64_t> values;                             ///< what they compute
};

/// One side value, whatever the batch.
struct Passed {
  SideValueUse use;
  bool is_input = false;
  std::optional<std::vector<ProgramSize>> sizes;
  at::ScalarType type = at::kFloat;
  std::optional<Computed> number;
};

std::optional<std::vector<int64_t>> known(const std::vector<ProgramSize>& sizes, const SymbolValues& symbols) {
  std::vector<int64_t> all;
  for (const ProgramSize& size : sizes) {
    const auto value = for_one_sample(size, symbols);
    if (!value || *value < 0) return std::nullopt;
    all.push_back(*value);
  }
  return all;
}

class PassedForms {
 public:
  PassedForms(const ProgramSource& source, const PassedFrom& from) : source_(source), from_(from) {
    for (const ProgramNode* node : from.nodes)
      if (node != nullptr)
        for (const auto& output : node->outputs)
          for (const ProgramValue& value : output.values) made_by_[value.index] = node;
  }

  std::vector<Passed> all() const {
    std::vector<Passed> passed;
    for (const SideValueUse& use : from_.uses) {
      Passed one{.use = use, .is_input = use.value == source_.division.input.index};
      const auto& tensor = source_.graph.values[static_cast<size_t>(use.value)].tensor;
      if (tensor && tensor->type) {
        one.sizes = tensor->sizes;
        one.type = torch_type(*tensor->type);
      } else if (Computed computed; !tensor && add(computed, use.value)) {
        one.number = std::move(computed);
      }
      passed.push_back(std::move(one));
    }
    return passed;
  }

 private:
  /// Adds what computes a number; false: it depends on more than sizes.
  bool add(Computed& computed, int64_t value) const {
    if (!computed.values.insert(value).second) return true;
    const auto made = made_by_.find(value);
    if (made == made_by_.end()) return false;
    const ProgramNode& node = *made->second;
    const bool reads_sizes = aten_name(node.target) == "sym_size" || aten_name(node.target) == "sym_numel";
    for (const auto& input : node.inputs)
      for (const ProgramItem& item : input.argument.items) {
        const auto* used = std::get_if<ProgramValue>(&item);
        if (used == nullptr) continue;
        const auto& tensor = source_.graph.values[static_cast<size_t>(used->index)].tensor;
        if (tensor && !reads_sizes) return false;
        if (tensor)
          computed.tensors[used->index] = tensor->sizes;
        else if (!add(computed, used->index))
          return false;
      }
    const InstructionSite site{.path = source_.path, .device = at::kMeta, .tensors = {}};
    computed.instructions.push_back(make_instruction(node, source_.graph, site));
    return true;
  }

  const ProgramSource& source_;
  const PassedFrom& from_;
  std::map<int64_t, const ProgramNode*> made_by_;
};

/// Null: the sizes that it reads are not known.
c10::IValue compute(const Computed& number, size_t value, size_t values, const SymbolValues& symbols) {
  ProgramValues all(values);
  for (const auto& [index, sizes] : number.tensors) {
    const auto of_batch = known(sizes, symbols);
    if (!of_batch) return {};
    all[static_cast<size_t>(index)] = shape_only(*of_batch, at::kFloat);
  }
  for (const Instruction& instruction : number.instructions) instruction.run(all, {});
  return all[value];
}

}  // namespace

PassedValues passed_values(const ProgramSource& source, const std::vector<std::string>& units,
                           const PassedFrom& training, const PassedFrom& evaluation) {
  const std::string batch = symbol_of(source.tensor_of(source.division.input).sizes.front()),
                    tokens = source.token_symbol();
  return [units, batch, tokens, path = source.path, count = source.graph.values.size(),
          trained = PassedForms(source, training).all(),
          evaluated = PassedForms(source, evaluation).all()](size_t unit, at::IntArrayRef input, bool is_training) {
    SymbolValues symbols{{batch, input[0]}};
    if (!tokens.empty()) symbols[tokens] = input[1];
    std::vector<PassedValue> all;
    for (const Passed& each : is_training ? trained : evaluated) {
      if (each.use.made_in >= unit || each.use.last_used_in < unit) continue;
      PassedValue& passed = all.emplace_back(PassedValue{static_cast<size_t>(each.use.value), each.is_input});
      if (each.is_input) continue;
      if (each.number) passed.number = compute(*each.number, passed.index, count, symbols);
      const auto sizes = each.sizes ? known(*each.sizes, symbols) : std::nullopt;
      if (sizes) passed.sizes = *sizes;
      passed.type = each.type;
      if (!sizes && passed.number.isNone())
        throw UserError(fmt::format(
            "{}: {} also uses a value of {} whose {} known before it is computed; a stage of "
            "parallel.pipeline cannot begin between them, so use fewer stages",
            path, units[each.use.last_used_in], units[each.use.made_in], each.sizes ? "size is not" : "number is not"));
    }
    return all;
  };
}

}  // namespace trainopt
