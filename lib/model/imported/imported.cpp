#include "model/imported/imported.h"

#include "base/error.h"
#include "device/tensor.h"
#include "model/imported/aliases.h"
#include "model/imported/division.h"
#include "model/imported/evaluation.h"
#include "model/imported/instruction.h"
#include "model/imported/side_values.h"
#include "model/program/inlined.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace trainopt {
namespace {

at::ScalarType torch_type(ProgramType type) {
  switch (type) {
    case ProgramType::uint8:
      return at::kByte;
    case ProgramType::int8:
      return at::kChar;
    case ProgramType::int16:
      return at::kShort;
    case ProgramType::int32:
      return at::kInt;
    case ProgramType::int64:
      return at::kLong;
    case ProgramType::float16:
      return at::kHalf;
    case ProgramType::float32:
      return at::kFloat;
    case ProgramType::float64:
      return at::kDouble;
    case ProgramType::boolean:
      return at::kBool;
    case ProgramType::bfloat16:
      return at::kBFloat16;
  }
  throw BrokenInvariant("a type of elements that is not in the list");
}

/// A tensor of the archive, contiguous in the CPU's memory.
at::Tensor read_tensor(const ProgramArchive& archive, const StoredTensor& stored) {
  const auto bytes = archive.size_of(stored.member);
  const at::ScalarType type = torch_type(stored.type);
  const at::Tensor all = at::empty({static_cast<int64_t>(bytes) / bytes_of(stored.type)}, type);
  std::string rest;
  const size_t whole = all.nbytes();
  if (whole == bytes) {
    archive.read(stored.member, {static_cast<uint8_t*>(all.mutable_data_ptr()), whole});
  } else {  // a last element that is cut off, which no tensor uses
    rest = archive.text_of(stored.member);
    std::memcpy(all.mutable_data_ptr(), rest.data(), whole);
  }
  const at::Tensor view = all.as_strided(stored.sizes, stored.strides, stored.offset);
  // A copy frees what the tensor does not use, and gives tied tensors memory of their own.
  return view.is_contiguous() && view.numel() == all.numel() ? view : view.contiguous().clone();
}

/// A program, checked and ready to be divided.
struct Source {
  explicit Source(const ModelConfig& config) : Source(config.path.value_or(""), config.program) {}
  Source(const std::string& file, const std::optional<std::string>& name)
      : program(open_program(file, name)), path(program.archive().path().string()) {
    try {
      graph = inlined(program.graph());
    } catch (const UserError& error) {
      refuse(error.what());
    }
    find_input();
    std::set<int64_t> used;
    for (const ProgramNode& node : graph.nodes) for_each_input(node, [&](int64_t value) { used.insert(value); });
    for (size_t i = 0; i < graph.inputs.size(); ++i)
      if (const ProgramInput& input = program.inputs()[i]; input.kind != ProgramInput::Kind::user) {
        const int64_t value = graph.inputs[i].index;
        names[value] = input.name;
        division.given.insert(value);
        // A parameter that nothing computes with has no gradient, and PyTorch's optimizers leave it as it is.
        const bool trained = input.kind == ProgramInput::Kind::parameter && used.contains(value) &&
                             is_floating(program.stored(input.name).type) &&
                             program.stored(input.name).requires_gradient;
        if (trained) division.trained.insert(value);
      }
    if (graph.outputs.size() != 1 || !std::holds_alternative<ProgramValue>(graph.outputs.front()))
      refuse(fmt::format("it returns {} values; it must return one tensor, the logits", graph.outputs.size()));
    if (graph.nodes.empty()) refuse("it computes nothing");
    find_changed();
  }

  [[noreturn]] void refuse(const std::string& why) const { program.archive().refuse(why); }

  bool is_trained(int64_t value) const { return division.trained.contains(value); }
  /// Whether the node changes a buffer that it also reads: not batch-norm's statistics, nor its count of batches.
  bool changes_what_it_reads(const ProgramNode& node) const {
    for (const int64_t written : written_values(node))
      for (const auto& [value, name] : names)
        if (aliases->set_of(value) == aliases->set_of(written) && !name.ends_with("num_batches_tracked")) return true;
    return false;
  }

  const ProgramTensor& tensor_of(const ProgramValue& value) const {
    const auto& tensor = graph.values[static_cast<size_t>(value.index)].tensor;
    if (!tensor) refuse("it takes or returns something else than a tensor");
    return *tensor;
  }

  Program program;
  std::string path;
  ProgramGraph graph;
  std::map<int64_t, std::string> names;  ///< parameters, buffers and constants, by the value's index
  std::optional<AliasSets> aliases;
  std::set<int64_t> changed;  ///< given values that an operation changes
  DivisionInput division;

 private:
  void find_changed() {
    aliases.emplace(graph);
    std::set<int64_t> sets;
    for (const ProgramNode& node : graph.nodes) {
      for (const int64_t written : written_values(node)) sets.insert(aliases->set_of(written));
      for (const std::string_view statistics : {"running_mean", "running_var"})  // which no schema names
        if (const auto value = value_argument(node, statistics)) sets.insert(aliases->set_of(value->index));
    }
    for (const auto& [value, name] : names)
      if (sets.contains(aliases->set_of(value))) changed.insert(value);
  }

  void find_input() {
    std::vector<ProgramValue> of_user;
    for (size_t i = 0; i < graph.inputs.size(); ++i)
      if (program.inputs()[i].kind == ProgramInput::Kind::user) of_user.push_back(graph.inputs[i]);
    if (of_user.size() != 1)
      refuse(fmt::format("it takes {} inputs; it must take one, the images or the tokens", of_user.size()));
    division.input = of_user.front();
    const ProgramTensor& tensor = tensor_of(division.input);
    if (!tensor.sizes.empty() && std::holds_alternative<int64_t>(tensor.sizes.front()))
      refuse(
          fmt::format("it was exported for batches of exactly {}; export it with "
                      "dynamic_shapes=({{0: torch.export.Dim(\"batch\")}},)",
                      std::get<int64_t>(tensor.sizes.front())));
    if (tensor.sizes.empty() || symbol_of(tensor.sizes.front()).empty())
      refuse("the size of its batches is not free: it depends on another; export it with torch.export.Dim(\"batch\")");
  }
};

/// The symbol of the tokens of a text, if their number is free; empty otherwise.
std::string token_symbol(const Source& source) {
  const ProgramTensor& tensor = source.tensor_of(source.division.input);
  return tensor.type == ProgramType::int64 && tensor.sizes.size() == 2 ? symbol_of(tensor.sizes[1]) : std::string();
}

InputShape shape_of(const Source& source, const ModelConfig& config) {
  const ProgramTensor& tensor = source.tensor_of(source.division.input);
  if (!token_symbol(source).empty()) return {.tokens = config.context};
  std::vector<int64_t> sizes;
  for (size_t i = 1; i < tensor.sizes.size(); ++i) {
    const auto* size = std::get_if<int64_t>(&tensor.sizes[i]);
    if (size == nullptr)
      source.refuse("its input has a free size besides the batch; export it with the first dimension free only");
    sizes.push_back(*size);
  }
  if (tensor.type == ProgramType::int64 && sizes.size() == 1) return {.tokens = sizes[0]};
  if (tensor.type == ProgramType::float32 && sizes.size() == 3)
    return {.channels = sizes[0], .height = sizes[1], .width = sizes[2]};
  source.refuse(
      "its input is neither images (float32: batch × channels × height × width) nor tokens (int64: batch × "
      "tokens)");
}

int64_t classes_of(const Source& source, const InputShape& input) {
  const ProgramTensor& output = source.tensor_of(std::get<ProgramValue>(source.graph.outputs.front()));
  const size_t dimensions = input.is_text() ? 3 : 2;
  const auto* last = output.sizes.empty() ? nullptr : std::get_if<int64_t>(&output.sizes.back());
  if (output.sizes.size() != dimensions || last == nullptr)
    source.refuse(
        fmt::format("it must return logits, {}", input.is_text() ? "batch × tokens × vocabulary" : "batch × classes"));
  return *last;
}

/// Whether it is a program of model.eval(): it has operations that training and evaluation tell apart, and all are in
/// evaluation.
bool is_of_evaluation(const Source& source) {
  bool evaluates = false, trains = false;
  for (const ProgramNode& node : source.graph.nodes)
    for (const std::string_view flag : {"training", "train", "use_input_stats"})
      if (const ProgramItem* item = constant_argument(node, flag))
        if (const bool* truth = std::get_if<bool>(item)) (*truth ? trains : evaluates) = true;
  return evaluates && !trains;
}

/// What an optimizer may treat differently: see ParameterKind.
std::map<std::string, ParameterKind> kinds_of(const Source& source) {
  constexpr std::array kNorms = {"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"};
  std::map<std::string, ParameterKind> kinds;
  for (const ProgramNode& node : source.graph.nodes) {
    const std::string_view name = aten_name(node.target);
    const bool norm = std::find(kNorms.begin(), kNorms.end(), name) != kNorms.end();
    if (!norm && name != "embedding") continue;
    for (const std::string_view argument : {"weight", "bias"})
      if (const auto value = value_argument(node, argument))
        if (const auto parameter = source.names.find(value->index); parameter != source.names.end())
          kinds[parameter->second] = norm ? ParameterKind::norm : ParameterKind::embedding;
  }
  return kinds;
}

/// One of the two lists of a unit.
struct UnitProgram {
  std::vector<Instruction> instructions;
  size_t values = 0;              ///< how many the whole program has
  int64_t input = 0, output = 0;  ///< values by index
  std::vector<int64_t> imports = {},
                       exports = {};  ///< side values that it takes from earlier units, and leaves to later ones
};

class ImportedUnit : public Unit {
 public:
  std::string name_;
  UnitProgram training, evaluation;
  SampleShape input_shape, output_shape;
  double flops_of_sample = 0;
  bool copies_input = false, is_language_head = false, changes_what_it_reads = false;
  std::string evaluation_problem;  ///< why there is no evaluation

  ImportedUnit(Builder&, const std::function<void(ImportedUnit&)>& fill) { fill(*this); }

  std::string name() const override { return name_; }

  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    if (!context.training && !evaluation_problem.empty()) throw UserError(evaluation_problem, ExitCode::checkpoint);
    const UnitProgram& program = context.training ? training : evaluation;
    ProgramValues all(program.values);
    all[static_cast<size_t>(program.input)] = copies_input ? input.clone() : input;
    for (const int64_t each : program.imports)
      all[static_cast<size_t>(each)] = context.side->values[static_cast<size_t>(each)];
    for (const Instruction& instruction : program.instructions) {
      instruction.run(all, context);
      for (const int64_t used : instruction.last_uses) all[static_cast<size_t>(used)] = {};
    }
    if (!program.exports.empty()) context.side->values.resize(program.values);
    for (const int64_t each : program.exports)
      context.side->values[static_cast<size_t>(each)] = all[static_cast<size_t>(each)];
    const at::Tensor output = all[static_cast<size_t>(program.output)].toTensor();
    if (!is_language_head || !context.target.defined()) return output;
    const at::Tensor logits = output.flatten(0, 1);
    return at::cross_entropy_loss(logits.to(at::promoteTypes(logits.scalar_type(), at::kFloat)),
                                  context.target.flatten(), {}, at::Reduction::Mean, kIgnoredTarget);
  }

  bool reads_what_it_changes() const override { return changes_what_it_reads; }

  SampleShape shape_after(const SampleShape& input, double& flops) const override {
    TRAINOPT_CHECK(input == input_shape);
    flops += flops_of_sample;
    return output_shape;
  }
};

/// Fills in what each instruction is the last to use, and the side values.
class Order {
 public:
  /// `nodes`: of the whole program, null where one is left out. `units`: the ranges, with input and output.
  Order(std::vector<const ProgramNode*> nodes, const std::vector<NodeRange>& units, const std::set<int64_t>& given,
        size_t values)
      : nodes_(std::move(nodes)), units_(units), values_(values) {
    for (size_t unit = 0; unit < units.size(); ++unit)
      for (size_t at = units[unit].first; at < units[unit].end; ++at) {
        if (nodes_[at] == nullptr) continue;
        for (const auto& output : nodes_[at]->outputs)
          for (const ProgramValue& value : output.values) made_in_[value.index] = unit;
        for (const auto& input : nodes_[at]->inputs)
          for (const ProgramItem& item : input.argument.items)
            if (const auto* value = std::get_if<ProgramValue>(&item); value && !given.contains(value->index)) {
              last_use_[{unit, value->index}] = at;
              used_in_[value->index].insert(unit);
            }
      }
    for (const auto& [unit_and_value, at] : last_use_) last_of_[at].push_back(unit_and_value.second);
  }

  UnitProgram of(size_t unit, ProgramValue input, ProgramValue output, const ProgramValue& of_user,
                 const std::function<Instruction(const ProgramNode&)>& make) const {
    UnitProgram program{.instructions = {}, .values = values_, .input = input.index, .output = output.index};
    for (const auto& [value, users] : used_in_) {
      if (users.contains(unit) && value != input.index && !is_made_in(value, unit)) program.imports.push_back(value);
      // The user's input is there from the start, so the first unit leaves it to the others.
      const bool first_has_it = unit == 0 && value == of_user.index;
      const bool used_later = !users.empty() && *users.rbegin() > unit;
      if ((is_made_in(value, unit) || first_has_it) && used_later && is_imported_later(value, unit))
        program.exports.push_back(value);
    }
    for (size_t at = units_[unit].first; at < units_[unit].end; ++at) {
      if (nodes_[at] == nullptr) continue;
      Instruction& added = program.instructions.emplace_back(make(*nodes_[at]));
      if (const auto last = last_of_.find(at); last != last_of_.end())
        for (const int64_t value : last->second)
          if (value != output.index && !contains(program.exports, value)) added.last_uses.push_back(value);
    }
    return program;
  }

 private:
  static bool contains(const std::vector<int64_t>& values, int64_t value) {
    return std::find(values.begin(), values.end(), value) != values.end();
  }
  bool is_made_in(int64_t value, size_t unit) const {
    const auto made = made_in_.find(value);
    return made != made_in_.end() && made->second == unit;
  }
  /// Whether a later unit uses the value otherwise than as its input.
  bool is_imported_later(int64_t value, size_t unit) const {
    for (const size_t user : used_in_.at(value))
      if (user > unit && units_[user].input.index != value) return true;
    return false;
  }

  std::vector<const ProgramNode*> nodes_;
  const std::vector<NodeRange>& units_;
  size_t values_;
  std::map<int64_t, size_t> made_in_;
  std::map<std::pair<size_t, int64_t>, size_t> last_use_;  ///< the last node of a unit that uses a value
  std::map<size_t, std::vector<int64_t>> last_of_;         ///< the values that a node is the last to use
  std::map<int64_t, std::set<size_t>> used_in_;
};

class Importer {
 public:
  Importer(Builder& builder, const ModelConfig& config, const InputShape& input)
      : builder_(builder), source_(config), input_(input), kinds_(kinds_of(source_)) {
    units_ = divide(source_.graph, source_.division, config.units);
    if (config.evaluation_path)
      open_other(config);
    else
      evaluation_ = evaluation_nodes(source_.graph, source_.names);
    measure();
  }

  void build() {
    InstructionSite site{.path = source_.path, .device = builder_.device(), .tensors = {}};
    builder_.layers().replaceable = false;
    builder_.layers().draws = std::any_of(source_.graph.nodes.begin(), source_.graph.nodes.end(), draws);
    const Order training = order_of_training(), evaluation = order_of_evaluation();
    for (size_t unit = 0; unit < units_.size(); ++unit)
      builder_.add<ImportedUnit>([&](ImportedUnit& made) {
        create_tensors(unit, site);
        fill(made, unit, site, training, evaluation);
      });
  }

 private:
  Order order_of_training() const {
    std::vector<const ProgramNode*> nodes;
    for (const ProgramNode& node : source_.graph.nodes) nodes.push_back(&node);
    return {nodes, units_, source_.division.given, source_.graph.values.size()};
  }
  Order order_of_evaluation() {
    std::vector<const ProgramNode*> nodes;
    if (other_) return {nodes, evaluated_units_, {}, 0};
    for (const auto& node : evaluation_.nodes) nodes.push_back(node ? &*node : nullptr);
    evaluated_units_ = units_;
    for (NodeRange& unit : evaluated_units_) {
      unit.input.index = evaluation_.same_as[static_cast<size_t>(unit.input.index)];
      unit.output.index = evaluation_.same_as[static_cast<size_t>(unit.output.index)];
    }
    return {nodes, evaluated_units_, source_.division.given, source_.graph.values.size()};
  }

  void fill(ImportedUnit& made, size_t unit, const InstructionSite& site, const Order& training,
            const Order& evaluation) const {
    const auto make = [&](const ProgramNode& node) { return make_instruction(node, source_.graph, site); };
    made.name_ = units_[unit].name;
    made.copies_input = units_[unit].copies_input;
    if (!evaluation_.problem.empty())
      made.evaluation_problem = fmt::format("{} cannot be evaluated: {}", source_.path, evaluation_.problem);
    for (size_t at = units_[unit].first; at < units_[unit].end; ++at)
      made.changes_what_it_reads |= source_.changes_what_it_reads(source_.graph.nodes[at]);
    made.training = training.of(unit, units_[unit].input, units_[unit].output, source_.division.input, make);
    if (other_)
      made.evaluation = by_other_program(unit, site);
    else if (evaluation_.problem.empty())
      made.evaluation = evaluation.of(unit, evaluated_units_[unit].input, evaluated_units_[unit].output,
                                      source_.division.input, make);
    made.input_shape = shapes_[unit];
    made.output_shape = shapes_[unit + 1];
    made.flops_of_sample = flops_[unit];
    made.is_language_head = input_.is_text() && unit + 1 == units_.size();
  }

  /// The program of the evaluation must have the tensors of the training's.
  void open_other(const ModelConfig& config) {
    other_.emplace(*config.evaluation_path, config.program);
    const auto state_of = [](const Source& source) {
      std::map<std::string, std::pair<ProgramType, std::vector<int64_t>>> state;
      for (const ProgramInput& input : source.program.inputs())
        if (input.kind == ProgramInput::Kind::parameter || input.kind == ProgramInput::Kind::buffer) {
          const StoredTensor& stored = source.program.stored(input.name);
          state[input.name] = {stored.type, stored.sizes};
        }
      return state;
    };
    const auto trained = state_of(source_), evaluated = state_of(*other_);
    for (const auto& [tensor, form] : trained)
      if (const auto found = evaluated.find(tensor); found == evaluated.end() || found->second != form)
        other_->refuse(
            fmt::format("it is not the model of {}: {} is missing or has another shape or type", source_.path, tensor));
    for (const auto& [tensor, form] : evaluated)
      if (!trained.contains(tensor))
        other_->refuse(fmt::format("it is not the model of {}, which has no {}", source_.path, tensor));
    if (!(shape_of(*other_, config) == shape_of(source_, config)))
      other_->refuse(fmt::format("it takes inputs of another shape than {}", source_.path));
    if (classes_of(*other_, input_) != classes_of(source_, input_))
      other_->refuse(fmt::format("it returns another number of logits than {}", source_.path));
    for (const ProgramNode& node : other_->graph.nodes)
      if (draws(node))
        other_->refuse(fmt::format("{} in {} draws random numbers; export it after eval()", node.target,
                                   node.modules.empty() ? "the model itself" : node.modules.back()));
  }

  /// The last unit evaluates the whole of the other program, and those before it pass the input on.
  UnitProgram by_other_program(size_t unit, const InstructionSite& site) const {
    const int64_t input = other_->division.input.index;
    UnitProgram program{.instructions = {}, .values = other_->graph.values.size(), .input = input, .output = input};
    if (unit + 1 < units_.size()) return program;
    std::map<std::string, at::Tensor> tensors;
    for (const auto& [value, tensor] : site.tensors) tensors.emplace(source_.names.at(value), tensor);
    InstructionSite of_other{.path = other_->path, .device = site.device, .tensors = {}};
    for (size_t i = 0; i < other_->graph.inputs.size(); ++i) {
      const ProgramInput& each = other_->program.inputs()[i];
      if (each.kind == ProgramInput::Kind::user) continue;
      const bool own = each.kind == ProgramInput::Kind::constant || !tensors.contains(each.name);
      of_other.tensors[other_->graph.inputs[i].index] =
          own ? read_tensor(other_->program.archive(), other_->program.stored(each.name)).to(site.device)
              : tensors.at(each.name);
    }
    NodeRange whole{.first = 0,
                    .end = other_->graph.nodes.size(),
                    .name = {},
                    .input = other_->division.input,
                    .output = std::get<ProgramValue>(other_->graph.outputs.front())};
    std::vector<const ProgramNode*> nodes;
    for (const ProgramNode& node : other_->graph.nodes) nodes.push_back(&node);
    const std::vector<NodeRange> all{whole};
    return Order(nodes, all, other_->division.given, program.values)
        .of(0, whole.input, whole.output, whole.input,
            [&](const ProgramNode& node) { return make_instruction(node, other_->graph, of_other); });
  }

  /// Creates, or finds in an earlier unit, what a unit computes with.
  void create_tensors(size_t unit, InstructionSite& site) {
    std::set<int64_t> used;
    for (size_t at = units_[unit].first; at < units_[unit].end; ++at)
      for (const auto& input : source_.graph.nodes[at].inputs)
        for (const ProgramItem& item : input.argument.items)
          if (const auto* value = std::get_if<ProgramValue>(&item); value && source_.names.contains(value->index))
            used.insert(value->index);
    for (size_t i = 0; i < source_.graph.inputs.size(); ++i) {
      const int64_t value = source_.graph.inputs[i].index;
      const bool unused = unit + 1 == units_.size() && !site.tensors.contains(value);
      if (source_.names.contains(value) && (used.contains(value) || unused))
        create(unit, source_.program.inputs()[i], value, site);
    }
  }

  void create(size_t unit, const ProgramInput& input, int64_t value, InstructionSite& site) {
    const StoredTensor& stored = source_.program.stored(input.name);
    const auto known = site.tensors.find(value);
    // What the graph changes is state, also if its model did not save it.
    const bool state = input.kind == ProgramInput::Kind::parameter || source_.changed.contains(value) ||
                       (input.kind == ProgramInput::Kind::buffer && input.persistent);
    const auto read = [&] { return read_tensor(source_.program.archive(), stored); };
    if (known != site.tensors.end()) {
      if (source_.is_trained(value)) builder_.shared(names_[value]);
    } else if (!state) {
      site.tensors[value] = site.device.is_meta()
                                ? at::empty(stored.sizes, at::TensorOptions(torch_type(stored.type)).device(at::kMeta))
                                : read().to(site.device);
    } else if (const auto tied = tied_.find({stored.member, stored.offset}); tied != tied_.end()) {
      const StoredTensor& first = source_.program.stored(source_.names.at(tied->second));
      if (first.sizes != stored.sizes || first.strides != stored.strides || first.type != stored.type)
        source_.refuse(fmt::format("{} shares memory with {} in another shape", input.name, names_.at(tied->second)));
      site.tensors[value] = site.tensors.at(tied->second);
      names_[value] = names_.at(tied->second);
      if (source_.is_trained(value) && unit_of_[tied->second] != unit) builder_.shared(names_[value]);
    } else {
      const bool trained = source_.is_trained(value);
      if (trained && stored.type != ProgramType::float32)
        source_.refuse(
            fmt::format("{} is not float32; export model.float(), and set optimizations.precision for "
                        "weights of 16 bits",
                        input.name));
      const auto kind = kinds_.find(input.name);
      site.tensors[value] = builder_.stored(input.name, stored.sizes, torch_type(stored.type), trained,
                                            kind == kinds_.end() ? ParameterKind::other : kind->second, read);
      names_[value] = input.name;
      tied_[{stored.member, stored.offset}] = value;
      unit_of_[value] = unit;
    }
  }

  /// What each unit returns, and its FLOPs.
  void measure() {
    shapes_.push_back(input_.is_text() ? SampleShape{input_.tokens}
                                       : SampleShape{input_.channels, input_.height, input_.width});
    SymbolValues symbols;
    if (const std::string tokens = token_symbol(source_); !tokens.empty()) symbols[tokens] = input_.tokens;
    for (const NodeRange& unit : units_) {
      double& flops = flops_.emplace_back(0);
      for (size_t at = unit.first; at < unit.end; ++at)
        flops += flops_of(source_.graph.nodes[at], source_.graph, symbols).value_or(0);
      SampleShape shape;
      for (const ProgramSize& size : source_.tensor_of(unit.output).sizes)
        shape.push_back(for_one_sample(size, symbols).value_or(0));
      shapes_.emplace_back(shape.empty() ? shape.begin() : shape.begin() + 1, shape.end());
    }
  }

  Builder& builder_;
  Source source_;
  InputShape input_;
  std::map<std::string, ParameterKind> kinds_;
  std::optional<Source> other_;  ///< the program of model.evaluation_path
  std::vector<NodeRange> units_, evaluated_units_;
  EvaluationNodes evaluation_;
  std::vector<SampleShape> shapes_;
  std::vector<double> flops_;
  std::map<int64_t, std::string> names_;                     ///< the entry's name of each value
  std::map<int64_t, size_t> unit_of_;                        ///< the unit that created each value
  std::map<std::pair<std::string, int64_t>, int64_t> tied_;  ///< the first value of each stored tensor
};

}  // namespace

ProgramFacts program_facts(const ModelConfig& config) {
  const Source source(config);
  if (is_of_evaluation(source))
    source.refuse(
        "it was exported after eval(), or its batch-norm is frozen and it has no dropout; export model.train()");
  if (source.division.trained.empty()) source.refuse("it has no parameter that is trained");
  const InputShape input = shape_of(source, config);
  const auto [least, largest] =
      source.program.range_of(symbol_of(source.tensor_of(source.division.input).sizes.front()));
  return {.input = input,
          .free_tokens = !token_symbol(source).empty(),
          .classes = classes_of(source, input),
          .least_batch = least,
          .largest_batch = largest,
          .operations = static_cast<int64_t>(source.graph.nodes.size()),
          .torch_version = source.program.torch_version()};
}

std::string why_not_evaluated(const ModelConfig& config) {
  if (config.evaluation_path) return {};  // building the model checks it
  const Source source(config);
  return evaluation_nodes(source.graph, source.names).problem;
}

ProgramNotes program_notes(const ModelConfig& config) {
  const Source source(config);
  ProgramNotes notes;
  for (const ProgramNode& node : source.graph.nodes) {
    const std::string where =
        fmt::format("{} in {}", node.target, node.modules.empty() ? "the model itself" : node.modules.back());
    if (!flops_of(node, source.graph)) notes.uncounted.push_back(where);
    if (draws(node)) notes.draws.push_back(where);
  }
  return notes;
}

void build_exported(Builder& builder, const ModelConfig& config, const InputShape& input) {
  const ProgramFacts facts = program_facts(config);
  const bool same = facts.input.is_text() ? facts.input.tokens == input.tokens : facts.input == input;
  if (!same) {
    const auto text = [](const InputShape& shape) {
      return shape.is_text() ? fmt::format("texts of {} tokens", shape.tokens)
                             : fmt::format("images of {}×{}×{}", shape.channels, shape.height, shape.width);
    };
    throw UserError(
        fmt::format("{}: it takes {}, and the data gives {}; change data.transforms, or export it for these",
                    config.path.value_or(""), text(facts.input), text(input)));
  }
  Importer(builder, config, input).build();
}

}  // namespace trainopt
