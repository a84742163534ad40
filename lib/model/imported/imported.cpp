#include "model/imported/imported.h"

#include "base/error.h"
#include "device/tensor.h"
#include "model/imported/division.h"
#include "model/imported/evaluation.h"
#include "model/imported/found_layers.h"
#include "model/imported/instruction.h"
#include "model/imported/order.h"
#include "model/imported/passed_values.h"
#include "model/imported/source.h"
#include "model/side_values.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace trainopt {
namespace {

/// What an optimizer may treat differently: see ParameterKind.
std::map<std::string, ParameterKind> kinds_of(const ProgramSource& source) {
  constexpr std::array kNorms = {"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"};
  std::map<std::string, ParameterKind> kinds;
  for (const ProgramNode& node : source.graph.nodes) {
    const std::string_view name = aten_name(node.target);
    const bool norm = std::find(kNorms.begin(), kNorms.end(), name) != kNorms.end();
    if (!norm && name != "embedding") continue;
    for (const std::string_view argument : {"weight", "bias"})
      if (const auto value = value_argument(node, argument))
        if (const auto parameter = source.names.find(value->index); parameter != source.names.end())
          kinds[source.first_name(parameter->second)] = norm ? ParameterKind::norm : ParameterKind::embedding;
  }
  return kinds;
}

class ImportedUnit : public Unit {
 public:
  std::string name_;
  UnitProgram training, evaluation;
  SampleShape input_shape, output_shape;
  double flops_of_sample = 0;
  bool copies_input = false, is_language_head = false, changes_what_it_reads = false;
  std::string evaluation_problem;  ///< why there is no evaluation
  std::shared_ptr<const Operations> operations;

  ImportedUnit(Builder&, const std::function<void(ImportedUnit&)>& fill) { fill(*this); }

  std::string name() const override { return name_; }

  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    if (!context.training && !evaluation_problem.empty()) throw UserError(evaluation_problem, ExitCode::checkpoint);
    const UnitProgram& program = context.training ? training : evaluation;
    ProgramValues all(program.values);
    all[static_cast<size_t>(program.input)] = copies_input ? input.clone() : input;
    for (const int64_t each : program.imports)
      all[static_cast<size_t>(each)] = context.side->values[static_cast<size_t>(each)];
    if (program.target) {
      TRAINOPT_CHECK(context.target.defined());
      all[*program.target] = context.target;
    }
    const bool loss_by_slot = program.language_head && context.target.defined();
    const size_t count = program.instructions.size() - (loss_by_slot ? 1 : 0);
    for (size_t i = 0; i < count; ++i) {
      const Instruction& instruction = program.instructions[i];
      instruction.run(all, context);
      for (const int64_t used : instruction.last_uses) all[static_cast<size_t>(used)] = {};
    }
    if (!program.exports.empty()) context.side->values.resize(program.values);
    for (const int64_t each : program.exports)
      context.side->values[static_cast<size_t>(each)] = all[static_cast<size_t>(each)];
    if (program.logits) context.side->logits = all[*program.logits].toTensor();
    if (loss_by_slot) {
      const auto& [hidden, weight, copy] = *program.language_head;
      return operations->language_head->loss(all[hidden].toTensor(), as_autocast(weight, copy), context.target);
    }
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

constexpr const char* kPlainLinear = "torch.ops.aten.linear.default";

class Importer {
 public:
  Importer(Builder& builder, const ModelConfig& config, const InputShape& input)
      : builder_(builder), source_(config), input_(input), keeps_state_(!config.weights), kinds_(kinds_of(source_)) {
    units_ = source_.divided(config.units);
    if (config.evaluation_path)
      open_other(config);
    else
      evaluation_ = evaluation_nodes(source_.graph, source_.names);
    measure();
    find_layers_of_training();
  }

  void build() {
    InstructionSite site{.path = source_.path, .device = builder_.device(), .tensors = {}};
    site.operations = builder_.operations();
    count_layers();
    const Order training = order_of_training(), evaluation = order_of_evaluation();
    for (size_t unit = 0; unit < units_.size(); ++unit)
      builder_.add<ImportedUnit>([&](ImportedUnit& made) {
        create_tensors(unit, site);
        fill(made, unit, site, training, evaluation);
      });
    name_tied_weights();
    std::vector<std::string> names;
    for (const NodeRange& unit : units_) names.push_back(unit.name);
    builder_.passes(passed_values(source_, names, {training.nodes(), training.side_values()},
                                  {evaluation.nodes(), evaluation.side_values()}));
  }

 private:
  using Found = std::map<std::string, FoundLayers>;

  /// The nodes with one for each layer that is found, and what was found.
  std::pair<ProgramNodes, Found> with_layers(ProgramNodes nodes, const std::vector<NodeRange>& units,
                                             bool training) const {
    LayerSearch search{.graph = source_.graph,
                       .aliases = *source_.aliases,
                       .names = source_.names,
                       .units = units,
                       .training = training,
                       .constant = [this](int64_t value) { return source_.constant(value, keeps_state_); }};
    if (const std::string tokens = source_.token_symbol(); !tokens.empty()) search.symbols[tokens] = input_.tokens;
    Found found = find_layers(nodes, search);
    // Without a target the last layer returns the logits, and no slot is asked.
    if (source_.task == ModelTask::language_model)
      if (const auto head = language_head_at(nodes, units.back())) nodes[*head]->target = kPlainLinear;
    return {std::move(nodes), std::move(found)};
  }

  /// Whether an attention is products and softmax, rather than libtorch's with a mask.
  static bool is_written_out(const ProgramNode& layer) {
    return constant_argument(layer, "written") != nullptr && constant_argument(layer, "is_libtorchs") == nullptr;
  }

  static bool is_linear(const ProgramNode& node) {
    return node.target == kLinearLayer || node.target == kLinearGeluLayer || node.target == kHeadLayer ||
           node.target == kPlainLinear;
  }

  void find_layers_of_training() {
    ProgramNodes nodes(source_.graph.nodes.begin(), source_.graph.nodes.end());
    std::tie(training_nodes_, found_) = with_layers(std::move(nodes), units_, true);
    for (const auto& node : training_nodes_) {
      if (!node || !(node->target == kConvolutionLayer || is_linear(*node))) continue;
      for (const std::string_view name : {"weight", "bias"})
        if (const auto value = value_argument(*node, name); value && source_.is_trained(value->index))
          cast_.insert(value->index);
    }
  }

  void count_layers() {
    LayerCounts& layers = builder_.layers();
    layers.imported = true;
    layers.draws = std::any_of(source_.graph.nodes.begin(), source_.graph.nodes.end(), draws);
    for (const auto& node : training_nodes_) {
      if (!node) continue;
      const auto sizes = [&] {
        return source_.program.stored(source_.names.at(value_argument(*node, "weight")->index)).sizes;
      };
      const std::string_view target = node->target;
      if (target == kConvolutionLayer) ++(sizes().at(2) == 3 ? layers.convolutions_3x3 : layers.other_convolutions);
      if (target == kBatchNormLayer) ++layers.batch_norms;
      if (target == kLayerNormLayer || target == kAddLayerNormLayer) ++layers.layer_norms;
      if (target == kAttentionLayer) {
        ++layers.attentions;
        if (is_written_out(*node)) ++layers.written_attentions;
        if (constant_argument(*node, "written") != nullptr) ++layers.replaced_if_asked;
        layers.attention_drops |= std::get<double>(*constant_argument(*node, "dropout_p")) > 0;
      }
      if (target == kLinearGeluLayer) ++layers.gelus;
      if (is_linear(*node) && target != kPlainLinear) {
        const bool transposed = constant_argument(*node, "transposed") != nullptr;
        layers.linears.push_back({.in = sizes().at(transposed ? 0 : 1), .out = sizes().at(transposed ? 1 : 0)});
      }
    }
    for (const auto& [why, count] : found_["convolutions"].left) layers.other_convolutions += count;
    for (const auto& [why, count] : found_["batch-norms"].left) layers.other_batch_norms += count;
    layers.language_head =
        source_.task == ModelTask::language_model && language_head_at(training_nodes_, units_.back()).has_value();
    layers.found = found_text(found_);
  }

  /// "20 of 20 convolutions, 12 of 15 attentions (3 not: their scale is not 1/√(head width))".
  static std::string found_text(const Found& found) {
    std::vector<std::string> kinds;
    for (const auto& [kind, layers] : found) {
      if (layers.found == 0 && layers.left.empty()) continue;
      int64_t all = layers.found;
      std::string others;
      for (const auto& [why, count] : layers.left) {
        all += count;
        others += fmt::format("{}{} not: {}", others.empty() ? "" : "; ", count, why);
      }
      kinds.push_back(
          fmt::format("{} of {} {}{}", layers.found, all, kind, others.empty() ? "" : fmt::format(" ({})", others)));
    }
    return fmt::format("{}", fmt::join(kinds, ", "));
  }

  /// Where the last operation is, if that is a linear layer without bias.
  std::optional<size_t> language_head_at(const ProgramNodes& nodes, const NodeRange& last_unit) const {
    for (size_t at = last_unit.end; at-- > last_unit.first;) {
      if (!nodes[at]) continue;
      const bool is_head = (nodes[at]->target == kLinearLayer || nodes[at]->target == kPlainLinear) &&
                           !value_argument(*nodes[at], "bias") && first_output(*nodes[at]) == last_unit.output &&
                           !nodes[at]->no_autocast && !nodes[at]->no_gradients && !nodes[at]->keeps_type;
      const auto weight = is_head ? value_argument(*nodes[at], "weight") : std::nullopt;
      return weight && source_.names.contains(weight->index) ? std::optional(at) : std::nullopt;
    }
    return std::nullopt;
  }
  std::optional<UnitProgram::LanguageHead> language_head(const ProgramNodes& nodes, const NodeRange& last_unit,
                                                         const InstructionSite& site) const {
    const auto at = language_head_at(nodes, last_unit);
    const auto weight = at ? value_argument(*nodes[*at], "weight") : std::nullopt;
    if (!weight || !site.tensors.contains(weight->index)) return std::nullopt;
    const auto copy = site.copies.find(weight->index);
    return UnitProgram::LanguageHead{.hidden = static_cast<size_t>(value_argument(*nodes[*at], "input")->index),
                                     .weight = site.tensors.at(weight->index),
                                     .copy = copy == site.copies.end() ? std::make_shared<at::Tensor>() : copy->second};
  }

  static std::vector<const ProgramNode*> pointers(const ProgramNodes& nodes) {
    std::vector<const ProgramNode*> all;
    for (const auto& node : nodes) all.push_back(node ? &*node : nullptr);
    return all;
  }

  Order order_of_training() const {
    return {pointers(training_nodes_), units_, source_.division.given, source_.graph.values.size()};
  }
  Order order_of_evaluation() {
    if (other_) return {{}, evaluated_units_, {}, 0};
    evaluated_units_ = units_;
    for (NodeRange& unit : evaluated_units_) {
      unit.input.index = evaluation_.same_as[static_cast<size_t>(unit.input.index)];
      unit.output.index = evaluation_.same_as[static_cast<size_t>(unit.output.index)];
    }
    evaluation_.nodes = with_layers(std::move(evaluation_.nodes), evaluated_units_, false).first;
    return {pointers(evaluation_.nodes), evaluated_units_, source_.division.given, source_.graph.values.size()};
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
    const bool is_last = unit + 1 == units_.size();
    give_target(made.training, source_, is_last);
    give_target(made.evaluation, other_ ? *other_ : source_, is_last);
    made.is_language_head = source_.task == ModelTask::language_model && is_last;
    made.operations = builder_.operations();
    if (made.is_language_head) {
      made.training.language_head = language_head(training_nodes_, units_.back(), site);
      if (!other_) made.evaluation.language_head = language_head(evaluation_.nodes, evaluated_units_.back(), site);
    }
  }

  static void give_target(UnitProgram& program, const ProgramSource& source, bool is_last) {
    if (source.target) program.target = source.target->index;
    if (is_last && source.logits_beside_loss) program.logits = source.logits_beside_loss->index;
  }

  /// The program of the evaluation must have the tensors of the training's.
  void open_other(const ModelConfig& config) {
    other_.emplace(*config.evaluation_path, config);
    const auto state_of = [](const ProgramSource& source) {
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
    if (!(other_->input_shape(config) == source_.input_shape(config)))
      other_->refuse(fmt::format("it takes inputs of another shape than {}", source_.path));
    if (other_->task != source_.task)
      other_->refuse(fmt::format("one of it and {} takes a target and the other one does not", source_.path));
    if (other_->classes() != source_.classes())
      other_->refuse(fmt::format("it returns another number of logits than {}", source_.path));
    for (const ProgramNode& node : other_->graph.nodes)
      if (draws(node)) other_->refuse(node.place() + " draws random numbers; export it after eval()");
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
      if (source_.names.contains(value) && (used.contains(value) || unused)) create(unit, i, site);
    }
  }

  /// A file may have a tied weight under each of its names.
  void name_tied_weights() {
    std::map<std::string, std::string> first_name;
    for (const auto& [value, entry] : names_)
      if (const std::string& own = source_.names.at(value); own != entry) first_name[own] = entry;
    if (first_name.empty()) return;
    builder_.names_in_files([first_name](const std::string& name) {
      const auto tied = first_name.find(name);
      return std::optional(tied == first_name.end() ? name : tied->second);
    });
  }

  void create(size_t unit, size_t index, InstructionSite& site) {
    const ProgramInput& input = source_.program.inputs()[index];
    const int64_t value = source_.graph.inputs[index].index;
    const StoredTensor& stored = source_.program.stored(input.name);
    const auto known = site.tensors.find(value);
    const bool state = source_.is_state(index);
    const auto read = [&] { return read_tensor(source_.program.archive(), stored); };
    if (known != site.tensors.end()) {
      if (source_.is_trained(value))
        known->second = builder_.shared(names_[value], read);
      else if (state && known->second.is_meta() && !site.device.is_meta() && builder_.holds_current())
        source_.refuse(
            fmt::format("{} is not trained and belongs to another stage of parallel.pipeline, but {} uses it too; use "
                        "fewer stages",
                        input.name, units_[unit].name));
    } else if (!state) {
      site.tensors[value] = site.device.is_meta()
                                ? at::empty(stored.sizes, at::TensorOptions(torch_type(stored.type)).device(at::kMeta))
                                : read().to(site.device);
    } else if (const auto tied = tied_.find({stored.member, stored.offset}); tied != tied_.end()) {
      const StoredTensor& first = source_.program.stored(source_.names.at(tied->second));
      if (first.sizes != stored.sizes || first.strides != stored.strides || first.type != stored.type)
        source_.refuse(fmt::format("{} shares memory with {} in another shape", input.name, names_.at(tied->second)));
      site.tensors[value] = site.tensors.at(tied->second);
      if (cast_.contains(value)) {
        WeightCopy& copy = site.copies[tied->second];
        if (!copy) copy = builder_.copy_of(names_.at(tied->second));
        site.copies[value] = copy;
      }
      names_[value] = names_.at(tied->second);
      if (source_.is_trained(value) && unit_of_[tied->second] != unit)
        site.tensors[value] = builder_.shared(names_[value], read);
    } else {
      const bool trained = source_.is_trained(value);
      if (trained && stored.type != ProgramType::float32)
        source_.refuse(
            fmt::format("{} is not float32; export model.float(), and set optimizations.precision for "
                        "weights of 16 bits",
                        input.name));
      const std::string& name = source_.first_name(input.name);
      const auto kind = kinds_.find(name);
      const auto is = kind == kinds_.end() ? ParameterKind::other : kind->second;
      site.tensors[value] =
          stored.is_new ? builder_.parameter(name, stored.sizes, InitialValues::torch_linear(source_.head->in), is)
                        : builder_.stored(name, stored.sizes, torch_type(stored.type), trained, is, read);
      if (source_.head && (value == source_.head->weight || value == source_.head->bias))
        builder_.belongs_to_head(name);
      names_[value] = name;
      if (cast_.contains(value)) site.copies[value] = builder_.copy_of(name);
      tied_[{stored.member, stored.offset}] = value;
      unit_of_[value] = unit;
    }
  }

  /// Adds a node's FLOPs, and notes how many values of a channel a batch-norm sees.
  void measure_node(const ProgramNode& node, const SymbolValues& symbols, double& flops) {
    flops += flops_of(node, source_.graph, symbols).value_or(0);
    const auto input = value_argument(node, "input");
    if (aten_name(node.target) != "batch_norm" || !truth(node, "training") || !input) return;
    int64_t values = 1;
    const std::vector<ProgramSize>& sizes = source_.tensor_of(*input).sizes;
    for (size_t i = 0; i < sizes.size(); ++i)
      if (i != 1) values *= for_one_sample(sizes[i], symbols).value_or(2);  // a run notices what is not understood
    builder_.layers().saw_norm_of(values);
  }

  /// What each unit returns, and its FLOPs.
  void measure() {
    shapes_.push_back(input_.is_text() ? SampleShape{input_.tokens}
                                       : SampleShape{input_.channels, input_.height, input_.width});
    SymbolValues symbols;
    if (const std::string tokens = source_.token_symbol(); !tokens.empty()) symbols[tokens] = input_.tokens;
    for (const NodeRange& unit : units_) {
      double& flops = flops_.emplace_back(0);
      for (size_t at = unit.first; at < unit.end; ++at) measure_node(source_.graph.nodes[at], symbols, flops);
      SampleShape shape;
      for (const ProgramSize& size : source_.tensor_of(unit.output).sizes)
        shape.push_back(for_one_sample(size, symbols).value_or(0));
      shapes_.emplace_back(shape.empty() ? shape.begin() : shape.begin() + 1, shape.end());
    }
  }

  Builder& builder_;
  ProgramSource source_;
  InputShape input_;
  bool keeps_state_;  ///< no file replaces what the archive holds
  std::map<std::string, ParameterKind> kinds_;
  std::set<int64_t> cast_;              ///< parameters that autocast casts, in found layers
  std::optional<ProgramSource> other_;  ///< the program of model.evaluation_path
  std::vector<NodeRange> units_, evaluated_units_;
  ProgramNodes training_nodes_;
  Found found_;
  EvaluationNodes evaluation_;
  std::vector<SampleShape> shapes_;
  std::vector<double> flops_;
  std::map<int64_t, std::string> names_;                     ///< the entry's name of each value
  std::map<int64_t, size_t> unit_of_;                        ///< the unit that created each value
  std::map<std::pair<std::string, int64_t>, int64_t> tied_;  ///< the first value of each stored tensor
};

}  // namespace

ProgramFacts program_facts(const ModelConfig& config) {
  const ProgramSource source(config);
  if (source.is_of_evaluation() && !config.evaluation_path)
    source.refuse(
        "it was exported after eval(); export model.train(), or, if its batch-norm is frozen on purpose, name a "
        "program for evaluation in model.evaluation_path");
  if (source.division.trained.empty()) source.refuse("it has no parameter that is trained");
  const InputShape input = source.input_shape(config);
  const auto [least, largest] =
      source.program.range_of(symbol_of(source.tensor_of(source.division.input).sizes.front()));
  return {.input = input,
          .free_tokens = !source.token_symbol().empty(),
          .classes = source.classes(),
          .embedded_tokens = source.embedded_tokens(),
          .task = source.task,
          .least_batch = least,
          .largest_batch = largest,
          .operations = static_cast<int64_t>(source.graph.nodes.size()),
          .torch_version = source.program.torch_version()};
}

int64_t nearest_context(const ModelConfig& config) {
  const ProgramSource source(config);
  const std::string tokens = source.token_symbol();
  if (tokens.empty()) return config.context;  // fixed, or no text
  const auto [least, largest] = source.program.range_of(tokens);
  return std::max(least.value_or(1), std::min(config.context, largest.value_or(config.context)));
}

std::string why_not_evaluated(const ModelConfig& config) {
  if (config.evaluation_path) return {};  // building the model checks it
  const ProgramSource source(config);
  return evaluation_nodes(source.graph, source.names).problem;
}

ProgramNotes program_notes(const ModelConfig& config) {
  ProgramSource source(config);
  ProgramNotes notes;
  for (const ProgramNode& node : source.graph.nodes) {
    if (!flops_of(node, source.graph)) notes.uncounted.push_back(node.place());
    if (draws(node)) notes.draws.push_back(node.place());
  }
  for (const NodeRange& unit : source.divided(config.units))
    for (const UncutPlace& each : unit.uncut)
      notes.uncut[unit.name].push_back(
          fmt::format("{} {}: {}", each.after ? "after" : "before", each.module, each.obstacle));
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
