#include "model/imported/source.h"

#include "base/error.h"
#include "device/tensor.h"
#include "model/imported/instruction.h"
#include "model/program/inlined.h"

#include <array>
#include <cstring>

namespace trainopt {

ProgramSource::ProgramSource(const ModelConfig& config) : ProgramSource(config.path.value_or(""), config.program) {}

ProgramSource::ProgramSource(const std::string& file, const std::optional<std::string>& name)
    : program(open_program(file, name)), path(program.archive().path().string()) {
  try {
    graph = inlined(program.graph());
  } catch (const UserError& error) {
    refuse(error.what());
  }
  find_input();
  find_given();
  if (graph.outputs.size() != 1 || !std::holds_alternative<ProgramValue>(graph.outputs.front()))
    refuse(fmt::format("it returns {} values; it must return one tensor, the logits", graph.outputs.size()));
  if (graph.nodes.empty()) refuse("it computes nothing");
  find_changed();
}

void ProgramSource::find_given() {
  std::set<int64_t> used;
  for (const ProgramNode& node : graph.nodes) for_each_input(node, [&](int64_t value) { used.insert(value); });
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    if (const ProgramInput& input = program.inputs()[i]; input.kind != ProgramInput::Kind::user) {
      const int64_t value = graph.inputs[i].index;
      names[value] = input.name;
      division.given.insert(value);
      // A parameter that nothing computes with has no gradient, and PyTorch's optimizers leave it as it is.
      const bool trained = input.kind == ProgramInput::Kind::parameter && used.contains(value) &&
                           is_floating(program.stored(input.name).type) && program.stored(input.name).requires_gradient;
      if (trained) division.trained.insert(value);
    }
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

void ProgramSource::find_input() {
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

at::Tensor ProgramSource::constant(int64_t value, bool keeps_state) const {
  if (is_trained(value) || changed.contains(value)) return {};
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (graph.inputs[i].index != value) continue;
    const ProgramInput& input = program.inputs()[i];
    const bool is_state =
        input.kind == ProgramInput::Kind::parameter || (input.kind == ProgramInput::Kind::buffer && input.persistent);
    if (input.kind == ProgramInput::Kind::user || (is_state && !keeps_state)) return {};
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

int64_t ProgramSource::classes(const InputShape& input) const {
  const ProgramTensor& output = tensor_of(std::get<ProgramValue>(graph.outputs.front()));
  const size_t dimensions = input.is_text() ? 3 : 2;
  const auto* last = output.sizes.empty() ? nullptr : std::get_if<int64_t>(&output.sizes.back());
  if (output.sizes.size() != dimensions || last == nullptr)
    refuse(
        fmt::format("it must return logits, {}", input.is_text() ? "batch × tokens × vocabulary" : "batch × classes"));
  return *last;
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
