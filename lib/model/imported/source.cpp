#include "model/imported/source.h"

#include "base/error.h"
#include "base/units.h"
#include "device/tensor.h"
#include "model/imported/instruction.h"
#include "model/program/inlined.h"

#include <array>
#include <cstring>

namespace trainopt {

ProgramSource::ProgramSource(const ModelConfig& config) : ProgramSource(config.path.value_or(""), config) {}

ProgramSource::ProgramSource(const std::string& file, const ModelConfig& config)
    : program(open_program(file, config.program)), path(program.archive().path().string()) {
  try {
    graph = inlined(program.graph());
  } catch (const UserError& error) {
    refuse(error.what());
  }
  find_inputs(config.task);
  find_outputs();
  find_given();
  find_last_layer(config);
  if (graph.nodes.empty()) refuse("it computes nothing");
  find_changed();
}

void ProgramSource::find_given() {
  std::set<int64_t> used;
  for (const ProgramNode& node : graph.nodes) for_each_input(node, [&](int64_t value) { used.insert(value); });
  // A tied weight has several names, and the graph may use one of them only.
  std::set<std::pair<std::string, int64_t>> used_memory;
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    if (program.inputs()[i].kind != ProgramInput::Kind::user && used.contains(graph.inputs[i].index)) {
      const StoredTensor& stored = program.stored(program.inputs()[i].name);
      used_memory.emplace(stored.member, stored.offset);
    }
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    if (const ProgramInput& input = program.inputs()[i]; input.kind != ProgramInput::Kind::user) {
      const int64_t value = graph.inputs[i].index;
      names[value] = input.name;
      division.given.insert(value);
      // A parameter that nothing computes with has no gradient, and PyTorch's optimizers leave it as it is.
      const StoredTensor& stored = program.stored(input.name);
      const bool trained = input.kind == ProgramInput::Kind::parameter && is_floating(stored.type) &&
                           stored.requires_gradient && used_memory.contains({stored.member, stored.offset});
      if (trained) division.trained.insert(value);
    }
}

void ProgramSource::find_last_layer(const ModelConfig& config) {
  std::string why_not =
      fmt::format("model.replace_head is for classifiers, and this is a program of model.task: {}", word_of(task));
  if (task == ModelTask::classification) head = find_head(graph, division.trained, why_not);
  if (!config.replace_head) return;
  if (!head) refuse(why_not + "; export it with the last layer that you need, and remove model.replace_head");
  const StoredTensor before = program.stored(names.at(head->weight));
  give_classes(*head, classes_of(config), names, graph, program);
  // What shared the old layer's memory is a weight that nothing uses now.
  for (const auto& [value, name] : names)
    if (const StoredTensor& stored = program.stored(name);
        stored.member == before.member && stored.offset == before.offset)
      division.trained.erase(value);
}

void ProgramSource::find_changed() {
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

void ProgramSource::find_inputs(ModelTask wanted) {
  std::vector<ProgramValue> of_user;
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    if (program.inputs()[i].kind == ProgramInput::Kind::user) of_user.push_back(graph.inputs[i]);
  require_inputs(of_user.size(), wanted);
  division.input = of_user.front();
  require_free_batch(tensor_of(division.input));
  const bool has_target = of_user.size() == 2, is_text = tensor_of(division.input).type == ProgramType::int64;
  task = has_target ? ModelTask::loss : is_text ? ModelTask::language_model : ModelTask::classification;
  if (wanted != ModelTask::automatic && wanted != task)
    refuse(fmt::format("it takes {}, and model.task: {} is for {}", is_text ? "tokens" : "images", word_of(wanted),
                       is_text ? "images" : "tokens"));
  if (has_target) find_target(of_user.back());
}

void ProgramSource::require_inputs(size_t count, ModelTask wanted) const {
  const bool may_have_target = wanted == ModelTask::automatic || wanted == ModelTask::loss;
  if (count == 2 && may_have_target) return;
  const auto* first = graph.outputs.empty() ? nullptr : std::get_if<ProgramValue>(&graph.outputs.front());
  const bool returns_loss = first != nullptr && tensor_of(*first).sizes.empty();
  if (wanted == ModelTask::loss || (count == 1 && returns_loss))
    refuse(
        fmt::format("it takes {}; a program that computes its own loss takes two, the images or tokens and the "
                    "target, even if it does not use the target",
                    counted(static_cast<int64_t>(count), "input")));
  if (count != 1)
    refuse(
        fmt::format("it takes {} inputs; it must take one, the images or the tokens, or, with model.task: loss, two: "
                    "also the target",
                    count));
}

void ProgramSource::require_free_batch(const ProgramTensor& input) const {
  if (!input.sizes.empty() && std::holds_alternative<int64_t>(input.sizes.front()))
    refuse(
        fmt::format("it was exported for batches of exactly {}; export it with "
                    "dynamic_shapes=({{0: torch.export.Dim(\"batch\")}},)",
                    std::get<int64_t>(input.sizes.front())));
  if (input.sizes.empty() || symbol_of(input.sizes.front()).empty())
    refuse("the size of its batches is not free: it depends on another; export it with torch.export.Dim(\"batch\")");
}

void ProgramSource::find_target(const ProgramValue& second) {
  target = second;
  require_used(division.input, second);
  division.given.insert(second.index);
  const ProgramTensor &input = tensor_of(division.input), &tensor = tensor_of(second);
  const bool is_text = input.type == ProgramType::int64;
  if (is_text && input.sizes.size() == 1)
    refuse(
        "its first input must be the images or the tokens, and the second one the target; this is the other way round");
  if (tensor.type != ProgramType::int64 || tensor.sizes.size() != (is_text ? 2U : 1U))
    refuse(fmt::format("its second input must be the target, int64: {}",
                       is_text ? "batch × tokens, the next one of each" : "batch, the class of each image"));
  if (!(tensor.sizes.front() == input.sizes.front()))
    refuse("its target has batches of another size than its input; export both with the same torch.export.Dim");
}

void ProgramSource::require_used(const ProgramValue& input, const ProgramValue& of_target) const {
  for (const ProgramNode& node : graph.nodes) {
    bool used = false;
    for_each_input(node, [&](int64_t value) { used = used || value == input.index; });
    if (used) return;
  }
  const auto& [first, second] = std::tie(graph.values[static_cast<size_t>(input.index)].name,
                                         graph.values[static_cast<size_t>(of_target.index)].name);
  refuse(
      fmt::format("nothing in it uses its input {}; torch.export takes two examples that are one tensor for one "
                  "input, so export it with another tensor for {}",
                  first, second));
}

void ProgramSource::find_outputs() {
  const size_t count = graph.outputs.size();
  const bool is_tensor = count > 0 && std::holds_alternative<ProgramValue>(graph.outputs.front());
  if (task != ModelTask::loss) {
    if (count != 1 || !is_tensor)
      refuse(fmt::format("it returns {} values; it must return one tensor, the logits", count));
    return;
  }
  if (count > 2 || !is_tensor)
    refuse(fmt::format("it returns {} values; it must return its loss, perhaps followed by logits", count));
  const ProgramTensor& loss = tensor_of(std::get<ProgramValue>(graph.outputs.front()));
  if (!loss.sizes.empty() || (loss.type && !is_floating(*loss.type)))
    refuse(
        "it takes two inputs, and what it returns first is no loss: that is one number, a tensor without dimensions");
  if (count == 2) find_logits_beside_loss();
  graph.outputs.resize(1);
}

/// Adds a node that computes them again without gradient, at the end: so they are known where the loss is.
void ProgramSource::find_logits_beside_loss() {
  const auto* logits = std::get_if<ProgramValue>(&graph.outputs[1]);
  if (logits == nullptr) return;
  const ProgramTensor tensor = tensor_of(*logits);
  if (tensor_of(division.input).type == ProgramType::int64) {  // no metric is known for those of texts
    const auto* last = tensor.sizes.size() == 3 ? std::get_if<int64_t>(&tensor.sizes.back()) : nullptr;
    if (last != nullptr) vocabulary_beside_loss = *last;
    return;
  }
  if (tensor.sizes.size() != 2 || !std::holds_alternative<int64_t>(tensor.sizes[1]) || !tensor.type ||
      !is_floating(*tensor.type))
    return;
  logits_beside_loss = ProgramValue{static_cast<int64_t>(graph.values.size())};
  graph.values.push_back({.name = graph.values[static_cast<size_t>(logits->index)].name, .tensor = tensor});
  graph.nodes.push_back({.target = "torch.ops.aten.detach.default",
                         .inputs = {{.name = "self", .argument = {.items = {*logits}}}},
                         .outputs = {{.values = {*logits_beside_loss}}}});
}

bool ProgramSource::changes_what_it_reads(const ProgramNode& node) const {
  for (const int64_t written : written_values(node))
    for (const auto& [value, name] : names)
      if (aliases->set_of(value) == aliases->set_of(written) && !name.ends_with("num_batches_tracked")) return true;
  return false;
}

const ProgramTensor& ProgramSource::tensor_of(const ProgramValue& value) const {
  const auto& tensor = graph.values[static_cast<size_t>(value.index)].tensor;
  if (!tensor) refuse("it takes or returns something else than a tensor");
  return *tensor;
}

const std::string& ProgramSource::first_name(const std::string& name) const {
  const StoredTensor& stored = program.stored(name);
  for (size_t i = 0; i < program.inputs().size(); ++i) {
    const ProgramInput& input = program.inputs()[i];
    if (input.kind == ProgramInput::Kind::user || !is_state(i)) continue;
    const StoredTensor& other = program.stored(input.name);
    if (other.member == stored.member && other.offset == stored.offset) return input.name;
  }
  return name;
}

std::vector<NodeRange> ProgramSource::divided(const std::string& where) {
  try {
    return divide(graph, division, where);
  } catch (const UserError& error) {
    if (error.code() != ExitCode::checkpoint) throw;
    refuse(error.what());
  }
}

bool ProgramSource::is_state(size_t input) const {
  const ProgramInput& about = program.inputs()[input];
  return about.kind == ProgramInput::Kind::parameter || changed.contains(graph.inputs[input].index) ||
         (about.kind == ProgramInput::Kind::buffer && about.persistent);
}

at::Tensor ProgramSource::constant(int64_t value, bool keeps_state) const {
  if (is_trained(value) || changed.contains(value)) return {};
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (graph.inputs[i].index != value) continue;
    const ProgramInput& input = program.inputs()[i];
    if (input.kind == ProgramInput::Kind::user || (is_state(i) && !keeps_state)) return {};
    return read_tensor(program.archive(), program.stored(input.name));
  }
  return {};
}

std::string ProgramSource::token_symbol() const {
  const ProgramTensor& tensor = tensor_of(division.input);
  return tensor.type == ProgramType::int64 && tensor.sizes.size() == 2 ? symbol_of(tensor.sizes[1]) : std::string();
}

InputShape ProgramSource::input_shape(const ModelConfig& config) const {
  const ProgramTensor& tensor = tensor_of(division.input);
  if (const std::string tokens = token_symbol(); !tokens.empty()) {
    const auto [least, most] = program.range_of(tokens);
    if (config.context < least.value_or(0) || config.context > most.value_or(config.context))
      refuse(fmt::format("it was exported for texts of {} to {} tokens, and model.context is {}", least.value_or(0),
                         most ? std::to_string(*most) : "any number of", config.context));
    return {.tokens = config.context};
  }
  std::vector<int64_t> sizes;
  for (size_t i = 1; i < tensor.sizes.size(); ++i) {
    const auto* size = std::get_if<int64_t>(&tensor.sizes[i]);
    if (size == nullptr)
      refuse("its input has a free size besides the batch; export it with the first dimension free only");
    sizes.push_back(*size);
  }
  if (tensor.type == ProgramType::int64 && sizes.size() == 1) return {.tokens = sizes[0]};
  if (tensor.type == ProgramType::float32 && sizes.size() == 3)
    return {.channels = sizes[0], .height = sizes[1], .width = sizes[2]};
  refuse(
      "its input is neither images (float32: batch × channels × height × width) nor tokens (int64: batch × "
      "tokens)");
}

int64_t ProgramSource::classes() const {
  if (task == ModelTask::loss)
    return logits_beside_loss ? std::get<int64_t>(tensor_of(*logits_beside_loss).sizes.back()) : 0;
  const ProgramTensor& output = tensor_of(std::get<ProgramValue>(graph.outputs.front()));
  const bool is_text = task == ModelTask::language_model;
  const auto* last = output.sizes.empty() ? nullptr : std::get_if<int64_t>(&output.sizes.back());
  if (output.sizes.size() != (is_text ? 3U : 2U) || last == nullptr)
    refuse(fmt::format("it must return logits, {}", is_text ? "batch × tokens × vocabulary" : "batch × classes"));
  return *last;
}

std::optional<int64_t> ProgramSource::embedded_tokens() const {
  std::optional<int64_t> most = vocabulary_beside_loss;
  for (const ProgramNode& node : graph.nodes) {
    const auto weight = aten_name(node.target) == "embedding" ? value_argument(node, "weight") : std::nullopt;
    const auto* rows = weight ? std::get_if<int64_t>(&tensor_of(*weight).sizes.front()) : nullptr;
    if (rows == nullptr) continue;
    if (value_argument(node, "indices") == division.input) return *rows;
    if (!vocabulary_beside_loss) most = std::max(most.value_or(0), *rows);
  }
  return most;
}

bool ProgramSource::is_of_evaluation() const {
  bool evaluates = false, trains = false;
  for (const ProgramNode& node : graph.nodes)
    for (const std::string_view flag : {"training", "train", "use_input_stats"})
      if (const ProgramItem* item = constant_argument(node, flag))
        if (const bool* truth = std::get_if<bool>(item)) (*truth ? trains : evaluates) = true;
  return evaluates && !trains;
}

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
  TRAINOPT_CHECK(!stored.is_new);
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
  // A copy frees what the tensor does not use, and gives tied tensors memory of their own. A view would keep the memory
  // of `all` alive when the tensor is given other data, such as channels-last.
  return view.is_contiguous() && view.numel() == all.numel() ? view.variable_data() : view.contiguous().clone();
}

}  // namespace trainopt
