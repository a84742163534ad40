#include "model/program/program.h"

#include "base/error.h"
#include "base/json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace trainopt {
namespace {

constexpr int64_t kSchemaMajor = 8;

/// What is wrong with the content; Program() adds the file.
[[noreturn]] void damaged(const std::string& why) { throw UserError(why, ExitCode::checkpoint); }

struct TypeRow {
  ProgramType type;
  int64_t bytes;
  bool floating = false;
};
constexpr std::array kTypes = {TypeRow{ProgramType::uint8, 1},         TypeRow{ProgramType::int8, 1},
                               TypeRow{ProgramType::int16, 2},         TypeRow{ProgramType::int32, 4},
                               TypeRow{ProgramType::int64, 8},         TypeRow{ProgramType::float16, 2, true},
                               TypeRow{ProgramType::float32, 4, true}, TypeRow{ProgramType::float64, 8, true},
                               TypeRow{ProgramType::boolean, 1},       TypeRow{ProgramType::bfloat16, 2, true}};

const TypeRow& row_of(ProgramType type) {
  return *std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& row) { return row.type == type; });
}

std::optional<ProgramType> type_from(int64_t code) {
  for (const TypeRow& row : kTypes)
    if (static_cast<int64_t>(row.type) == code) return row.type;
  return std::nullopt;
}

/// Parses a member of the archive. The parser copies what it has while it grows, and needs stack for every level.
Json parse_member(const ProgramArchive& archive, const std::string& name) {
  constexpr int kDeepest = 200;
  const auto shallow = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepest) damaged(fmt::format("its {} has more than {} levels", name, kDeepest));
    return true;
  };
  return Json::parse(archive.text_of(name), shallow);
}

/// The only entry of an object such as {"as_int": 3}.
std::pair<std::string, const Json&> only_entry(const Json& json) {
  if (!json.is_object() || json.size() != 1) damaged("its program has a value that is not of one kind");
  return {json.begin().key(), json.begin().value()};
}

int64_t integer_of(const Json& json) {
  if (!json.is_number_integer()) damaged("its program has something else where a whole number should be");
  return json.get<int64_t>();
}

double number_of(const Json& json) {
  if (json.is_string()) {
    const auto text = json.get<std::string>();
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (text == "Infinity") return kInfinity;
    if (text == "-Infinity") return -kInfinity;
    if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  }
  return json.get<double>();
}

ProgramSize size_from(const Json& json) {
  const auto [kind, value] = only_entry(json);
  if (kind == "as_int") {
    const int64_t size = integer_of(value);
    if (size < 0) damaged("its program has a tensor of negative size");
    return size;
  }
  return value.at("expr_str").get<std::string>();
}

ProgramTensor tensor_from(const Json& meta) {
  ProgramTensor tensor{.type = type_from(integer_of(meta.at("dtype"))), .sizes = {}};
  for (const Json& size : meta.at("sizes")) tensor.sizes.push_back(size_from(size));
  return tensor;
}

/// Reads a graph, and the graphs within it.
class GraphReader {
 public:
  explicit GraphReader(int depth = 0) : depth_(depth) {
    if (depth > 8) damaged("its program has graphs within graphs, more than eight deep");
  }

  ProgramGraph read(const Json& json) {
    tensors_ = &json.at("tensor_values");
    for (const Json& input : json.at("inputs")) {
      const auto [kind, value] = only_entry(input);
      graph_.inputs.push_back(define(name_in(value)));
    }
    for (const Json& node : json.at("nodes")) graph_.nodes.push_back(node_from(node));
    for (const Json& output : json.at("outputs")) graph_.outputs.push_back(item_from(output));
    return std::move(graph_);
  }

 private:
  static std::string name_in(const Json& value) {
    if (value.is_object() && value.contains("name")) return value.at("name").get<std::string>();
    if (value.is_object() && value.contains("as_name")) return value.at("as_name").get<std::string>();
    damaged("its program has an input that is no tensor");
  }

  ProgramValue define(const std::string& name) {
    const ProgramValue value{static_cast<int64_t>(graph_.values.size())};
    if (!known_.emplace(name, value).second) damaged(fmt::format("its program defines {} twice", name));
    ProgramGraph::Value& added = graph_.values.emplace_back(ProgramGraph::Value{.name = name, .tensor = {}});
    if (const auto meta = tensors_->find(name); meta != tensors_->end()) added.tensor = tensor_from(*meta);
    return value;
  }

  ProgramValue use(const std::string& name) const {
    const auto value = known_.find(name);
    if (value == known_.end()) damaged(fmt::format("its program uses {} before it is computed", name));
    return value->second;
  }

  ProgramItem item_from(const Json& json, int depth = 0) {
    if (depth > 3) damaged("its program has an argument within arguments, more than three deep");
    const auto [kind, value] = only_entry(json);
    return item_from(kind, value, depth);
  }

  ProgramItem item_from(const std::string& kind, const Json& value, int depth = 0) {
    if (kind == "as_none") return {};
    if (kind == "as_tensor") return use(value.at("name").get<std::string>());
    if (kind == "as_int") return integer_of(value);
    if (kind == "as_float") return number_of(value);
    if (kind == "as_bool") return value.get<bool>();
    if (kind == "as_string") return value.get<std::string>();
    if (kind == "as_scalar_type") return ScalarTypeCode{integer_of(value)};
    if (kind == "as_layout") return LayoutCode{integer_of(value)};
    if (kind == "as_memory_format") return MemoryFormatCode{integer_of(value)};
    if (kind == "as_device") return DeviceName{value.at("type").get<std::string>()};
    if (kind == "as_name") return use(value.get<std::string>());  // within a symbolic argument
    if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool" || kind == "as_optional_tensor")
      return item_from(value, depth + 1);
    if (kind == "as_graph") return std::make_shared<ProgramGraph>(GraphReader(depth_ + 1).read(value.at("graph")));
    damaged(fmt::format("its program has an argument of the kind {}, which is not supported", kind.substr(0, 40)));
  }

  /// How the elements of a list argument are written: as values themselves, or each as an argument of this kind.
  static std::optional<std::string> element_kind(const std::string& list) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kLists = {{{"as_tensors", "as_tensor"},
                                                                                      {"as_ints", "as_int"},
                                                                                      {"as_floats", "as_float"},
                                                                                      {"as_bools", "as_bool"},
                                                                                      {"as_strings", "as_string"},
                                                                                      {"as_nones", "as_none"}}};
    for (const auto& [name, element] : kLists)
      if (name == list) return std::string(element);
    return std::nullopt;
  }

  ProgramArgument argument_from(const Json& json) {
    const auto [kind, value] = only_entry(json);
    ProgramArgument argument;
    if (const auto element = element_kind(kind)) {
      argument.is_list = true;
      for (const Json& each : value) argument.items.push_back(item_from(*element, each));
    } else if (kind == "as_sym_ints" || kind == "as_sym_floats" || kind == "as_optional_tensors") {
      argument.is_list = true;
      for (const Json& each : value) argument.items.push_back(item_from(each));
    } else {
      argument.items.push_back(item_from(kind, value));
    }
    return argument;
  }

  ProgramValue output_from(const Json& json, int depth = 0) {
    if (depth > 3) damaged("its program has an output within outputs, more than three deep");
    const auto [kind, value] = only_entry(json);
    if (kind == "as_none") return {};
    if (kind == "as_optional_tensor") return output_from(value, depth + 1);
    return define(name_in(value));
  }

  ProgramNode node_from(const Json& json) {
    ProgramNode node{.target = json.at("target").get<std::string>(), .inputs = {}, .outputs = {}, .modules = {}};
    for (const Json& input : json.at("inputs"))
      node.inputs.push_back({.name = input.at("name").get<std::string>(), .argument = argument_from(input.at("arg"))});
    for (const Json& output : json.at("outputs")) {
      const auto [kind, value] = only_entry(output);
      ProgramNode::Output& added = node.outputs.emplace_back();
      added.is_list = kind == "as_tensors";
      if (added.is_list)
        for (const Json& each : value) added.values.push_back(define(name_in(each)));
      else
        added.values.push_back(output_from(output));
    }
    if (const auto stack = json.at("metadata").find("nn_module_stack"); stack != json.at("metadata").end())
      node.modules = modules_from(stack->get<std::string>());
    return node;
  }

  /// The paths in "key,path,class;key,path,class;…".
  static std::vector<std::string> modules_from(const std::string& stack) {
    std::vector<std::string> modules;
    for (size_t at = 0; at < stack.size();) {
      const size_t end = std::min(stack.find(';', at), stack.size()), first = stack.find(',', at);
      const size_t second = first < end ? stack.find(',', first + 1) : std::string::npos;
      if (second < end && second > first + 1) {
        std::string path = stack.substr(first + 1, second - first - 1);
        if (!path.starts_with('_') && (modules.empty() || modules.back() != path)) modules.push_back(std::move(path));
      }
      at = end + 1;
    }
    return modules;
  }

  int depth_;
  const Json* tensors_ = nullptr;
  ProgramGraph graph_;
  std::map<std::string, ProgramValue> known_;
};

/// The sum of (size − 1) × stride over all dimensions must stay below `elements`.
bool is_within(const StoredTensor& tensor, uint64_t elements) {
  __extension__ using Wide = __int128;
  constexpr Wide kMostRepeated = Wide{1} << 24;  // a buffer may repeat an element: stride 0
  const auto negative = [](int64_t number) { return number < 0; };
  if (negative(tensor.offset) || std::ranges::any_of(tensor.sizes, negative) ||
      std::ranges::any_of(tensor.strides, negative))
    return false;
  Wide last = tensor.offset, all = 1;
  for (size_t i = 0; i < tensor.sizes.size(); ++i) {
    all *= tensor.sizes[i];
    last += static_cast<Wide>(tensor.sizes[i] - 1) * tensor.strides[i];
    if (all > static_cast<Wide>(elements) + kMostRepeated || last > std::numeric_limits<int64_t>::max()) return false;
  }
  return all == 0 || last < static_cast<Wide>(elements);
}

int64_t number_from(const Json& size) {
  const auto [kind, value] = only_entry(size);
  if (kind != "as_int") damaged("its weights have sizes that are not numbers");
  return integer_of(value);
}

StoredTensor stored_from(const std::string& name, const Json& json, const std::string& folder,
                         const ProgramArchive& archive) {
  if (json.value("use_pickle", false))
    damaged(fmt::format("{} is stored as a pickle, which would run code; it must be a plain tensor", name));
  const Json& meta = json.at("tensor_meta");
  const auto type = type_from(integer_of(meta.at("dtype")));
  if (!type) damaged(fmt::format("{} has a type of elements that is not supported", name));
  StoredTensor tensor{
      .member = folder + json.at("path_name").get<std::string>(), .type = *type, .sizes = {}, .strides = {}};
  for (const Json& size : meta.at("sizes")) tensor.sizes.push_back(number_from(size));
  for (const Json& stride : meta.at("strides")) tensor.strides.push_back(number_from(stride));
  tensor.offset = number_from(meta.at("storage_offset"));
  tensor.requires_gradient = meta.at("requires_grad").get<bool>();
  if (tensor.sizes.size() != tensor.strides.size() || tensor.sizes.size() > 64 ||
      !is_within(tensor, archive.size_of(tensor.member) / static_cast<uint64_t>(bytes_of(*type))))
    damaged(fmt::format("{} does not lie within its member of the archive", name));
  return tensor;
}

std::optional<int64_t> bound_from(const Json& json) {
  return json.is_number_integer() ? std::optional(json.get<int64_t>()) : std::nullopt;
}

ProgramInput input_from(const Json& json) {
  const auto [kind, spec] = only_entry(json);
  if (kind == "parameter")
    return {.kind = ProgramInput::Kind::parameter, .name = spec.at("parameter_name").get<std::string>()};
  if (kind == "buffer")
    return {.kind = ProgramInput::Kind::buffer,
            .name = spec.at("buffer_name").get<std::string>(),
            .persistent = spec.at("persistent").get<bool>()};
  if (kind == "tensor_constant")
    return {.kind = ProgramInput::Kind::constant, .name = spec.at("tensor_constant_name").get<std::string>()};
  if (kind == "user_input") {
    const auto [argument, value] = only_entry(spec.at("arg"));
    if (argument == "as_tensor") return {.kind = ProgramInput::Kind::user, .name = value.at("name").get<std::string>()};
  }
  damaged(fmt::format("its program has an input of the kind {}, which is not supported", kind.substr(0, 40)));
}

std::string program_name(const ProgramArchive& archive, const std::optional<std::string>& wanted) {
  std::vector<std::string> names = archive.names_in("models/");
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(".json"); });
  for (std::string& name : names) name.resize(name.size() - std::string_view(".json").size());
  if (wanted) {
    if (std::find(names.begin(), names.end(), *wanted) == names.end())
      damaged(fmt::format("it has no program {} (model.program), only {}", *wanted, fmt::join(names, ", ")));
    return *wanted;
  }
  if (names.size() != 1)
    damaged(names.empty()
                ? "it has no program in models/"
                : fmt::format("it has several programs; choose one with model.program: {}", fmt::join(names, ", ")));
  return names.front();
}

}  // namespace

std::string ProgramNode::place() const {
  return fmt::format("{} in {}", target, modules.empty() ? "the model itself" : modules.back());
}

int64_t bytes_of(ProgramType type) { return row_of(type).bytes; }
bool is_floating(ProgramType type) { return row_of(type).floating; }

Program::Program(std::shared_ptr<const ProgramArchive> archive, const std::optional<std::string>& name)
    : archive_(std::move(archive)) {
  try {
    const std::string program = name_ = program_name(*archive_, name);
    const Json json = parse_member(*archive_, "models/" + program + ".json");
    const Json& version = json.at("schema_version");
    torch_version_ = json.value("torch_version", "");
    if (integer_of(version.at("major")) != kSchemaMajor)
      damaged(fmt::format("its program has version {}.{} of the format (torch {}); this build reads version {}",
                          integer_of(version.at("major")), integer_of(version.at("minor")), torch_version_,
                          kSchemaMajor));
    const Json& module = json.at("graph_module");
    const Json& signature = module.at("signature");
    for (const Json& output : signature.at("output_specs"))
      if (only_entry(output).first != "user_output")
        damaged(
            "its program returns the buffers that it changes, as run_decompositions() makes it; save what "
            "torch.export.export returned");
    graph_ = GraphReader().read(module.at("graph"));
    if (const auto ranges = json.find("range_constraints"); ranges != json.end())
      for (const auto& [symbol, range] : ranges->items())
        ranges_[symbol] = {bound_from(range.at("min_val")), bound_from(range.at("max_val"))};
    for (const Json& input : signature.at("input_specs")) inputs_.push_back(input_from(input));
    if (inputs_.size() != graph_.inputs.size()) damaged("its program's inputs and their descriptions differ in number");
    for (const auto& [folder, config] :
         {std::pair<std::string, std::string>{"data/weights/", program + "_weights_config.json"},
          {"data/constants/", program + "_constants_config.json"}}) {
      const Json all = parse_member(*archive_, folder + config);
      for (const auto& [tensor, about] : all.at("config").items())
        stored_.emplace(tensor, stored_from(tensor, about, folder, *archive_));
    }
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].kind != ProgramInput::Kind::user) require_stored(i);
  } catch (const Json::exception& error) {
    archive_->refuse("its program is damaged: " + json_problem(error));
  } catch (const UserError& error) {
    if (std::string_view(error.what()).starts_with(archive_->path().string())) throw;
    archive_->refuse(error.what());
  }
}

Program::Range Program::range_of(const std::string& symbol) const {
  const auto range = ranges_.find(symbol);
  return range == ranges_.end() ? Range() : range->second;
}

/// The graph and the weights must agree on the tensor.
void Program::require_stored(size_t input) const {
  const std::string& name = inputs_[input].name;
  const auto stored = stored_.find(name);
  if (stored == stored_.end()) damaged(fmt::format("its weights lack {}", name));
  const auto& seen = graph_.values[static_cast<size_t>(graph_.inputs[input].index)].tensor;
  if (!seen) return;
  const std::vector<ProgramSize> sizes(stored->second.sizes.begin(), stored->second.sizes.end());
  if (seen->type != stored->second.type || seen->sizes != sizes)
    damaged(fmt::format("{} has another shape or type in the weights than in the program", name));
}

const StoredTensor& Program::stored(const std::string& name) const {
  const auto tensor = stored_.find(name);
  TRAINOPT_CHECK(tensor != stored_.end());
  return tensor->second;
}

void Program::replace(const std::string& name, std::vector<int64_t> sizes) {
  StoredTensor& tensor = stored_.at(name);
  tensor = {.member = "new " + name, .type = tensor.type, .sizes = std::move(sizes), .strides = {}};
  tensor.requires_gradient = tensor.is_new = true;
}

Program open_program(const std::filesystem::path& path, const std::optional<std::string>& name) {
  return Program(std::make_shared<const ProgramArchive>(path), name);
}

}  // namespace trainopt
