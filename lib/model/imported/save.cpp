#include "model/imported/save.h"

#include "base/error.h"
#include "base/json.h"
#include "device/tensor.h"
#include "model/imported/source.h"
#include "model/program/archive_copy.h"

#include <map>
#include <set>
#include <string>

namespace trainopt {
namespace {

constexpr std::string_view kWeights = "data/weights/", kConfigEnding = "_weights_config.json";

Json sizes_json(const std::vector<int64_t>& sizes) {
  Json json = Json::array();
  for (const int64_t size : sizes) json.push_back({{"as_int", size}});
  return json;
}

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  return strides;
}

/// Sets what the format says of a tensor that lies in its member from `offset` on without gaps.
void describe(Json& meta, const std::vector<int64_t>& sizes, int64_t offset) {
  meta["sizes"] = sizes_json(sizes);
  meta["strides"] = sizes_json(contiguous_strides(sizes));
  meta["storage_offset"] = {{"as_int", offset}};
}

/// How many classes the last layer of a run has, which may differ from those of the program as it was exported.
int64_t classes_in(const NamedTensors& weights, const ProgramSource& original) {
  if (original.head)
    for (const auto& [name, tensor] : weights)
      if (name == original.names.at(original.head->weight) && tensor.dim() == 2) return tensor.size(0);
  original.refuse("it has no last layer that the run could have replaced; it is not the program that was trained");
}

class ProgramWriter {
 public:
  /// `config`: with the number of classes that the weights have.
  ProgramWriter(const ModelConfig& config, ProgramSource original)
      : config_(config),
        original_(std::move(original)),
        source_(config),
        archive_(source_.program.archive()),
        name_(source_.program.name()) {
    require_own_members();
  }

  void put(const NamedTensors& weights) {
    const std::map<std::string, at::Tensor> values(weights.begin(), weights.end());
    for (const auto& [name, tensor] : values) require_own(name, tensor);
    std::set<std::pair<std::string, int64_t>> given;  // a tied weight has one of its names in the run's file
    for (const ProgramInput& input : source_.program.inputs())
      if (const auto value = values.find(input.name); value != values.end()) {
        put(input.name, value->second);
        given.insert(memory_of(input.name));
      }
    for (size_t i = 0; i < source_.program.inputs().size(); ++i) {
      const ProgramInput& input = source_.program.inputs()[i];
      const bool is_state = input.kind != ProgramInput::Kind::user && source_.is_state(i);
      if (is_state && !given.contains(memory_of(input.name)))
        archive_.refuse(fmt::format("the run has no {}, so this is not the program that it trained", input.name));
    }
  }

  void write(const std::filesystem::path& to) {
    if (config_.replace_head) describe_head();
    copy_archive(archive_, to, changed_);
  }

 private:
  std::pair<std::string, int64_t> memory_of(const std::string& name) const {
    const StoredTensor& stored = source_.program.stored(name);
    return {stored.member, stored.offset};
  }

  /// A member of the archive that another of its programs uses too would change for both.
  void require_own_members() const {
    const auto members = [&](const std::string& config) {
      std::set<std::string> names;
      for (const auto& [tensor, about] : Json::parse(archive_.text_of(config)).at("config").items())
        names.insert(about.at("path_name").get<std::string>());
      return names;
    };
    const std::set<std::string> own = members(weights_config());
    for (const std::string& name : archive_.names_in(std::string(kWeights))) {
      const std::string config = std::string(kWeights) + name;
      if (!name.ends_with(kConfigEnding) || config == weights_config()) continue;
      for (const std::string& member : members(config))
        if (own.contains(member)) archive_.refuse("it has another program with the same weights; save one alone");
    }
  }

  void require_own(const std::string& name, const at::Tensor& tensor) const {
    for (const ProgramInput& input : source_.program.inputs())
      if (input.kind != ProgramInput::Kind::user && input.name == name) {
        const std::vector<int64_t>& sizes = source_.program.stored(name).sizes;
        if (tensor.sizes() == sizes) return;
        archive_.refuse(fmt::format("its {} is [{}], and that of the run [{}]; it is not the program that was trained",
                                    name, fmt::join(sizes, ", "), fmt::join(tensor.sizes(), ", ")));
      }
    archive_.refuse(fmt::format("it has no {}, which the run has; it is not the program that was trained", name));
  }

  void put(const std::string& name, const at::Tensor& values) {
    const StoredTensor& stored = source_.program.stored(name);
    const at::Tensor as_stored = values.to(torch_type(stored.type)).contiguous();
    if (stored.is_new) {
      put_new(name, as_stored);
      return;
    }
    std::string& content = content_of(stored.member);
    const int64_t elements = static_cast<int64_t>(content.size()) / bytes_of(stored.type);
    const at::Tensor member = at::from_blob(content.data(), {elements}, torch_type(stored.type));
    member.as_strided(stored.sizes, stored.strides, stored.offset).copy_(as_stored);
  }

  /// The new bytes of a member, at first the old ones.
  std::string& content_of(const std::string& member) {
    const auto [bytes, is_first] = changed_.try_emplace(member);
    if (is_first) {
      bytes->second.resize(archive_.size_of(member));
      archive_.read(member, {reinterpret_cast<uint8_t*>(bytes->second.data()), bytes->second.size()});
    }
    return bytes->second;
  }

  /// A parameter of the new last layer follows the old bytes of its member, in which other tensors may lie too.
  void put_new(const std::string& name, const at::Tensor& values) {
    std::string& content = content_of(original_.program.stored(name).member);
    const auto element = static_cast<size_t>(bytes_of(source_.program.stored(name).type));
    content.resize((content.size() + element - 1) / element * element);
    new_offsets_[name] = static_cast<int64_t>(content.size() / element);
    content.append(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
  }

  /// The graph and the list of weights name the sizes of the last layer.
  void describe_head() {
    const std::string graph_member = "models/" + name_ + ".json";
    Json graph = Json::parse(archive_.text_of(graph_member)), weights = Json::parse(archive_.text_of(weights_config()));
    Json& tensors = graph.at("graph_module").at("graph").at("tensor_values");
    const ProgramHead& head = *source_.head;
    const auto name_of = [&](int64_t value) { return source_.graph.values[static_cast<size_t>(value)].name; };
    const auto describe_parameter = [&](int64_t value) {
      const std::string& name = source_.names.at(value);
      const std::vector<int64_t>& sizes = source_.program.stored(name).sizes;
      describe(tensors.at(name_of(value)), sizes, 0);
      describe(weights.at("config").at(name).at("tensor_meta"), sizes, new_offsets_.at(name));
    };
    describe_parameter(head.weight);
    if (head.bias) describe_parameter(*head.bias);
    for (const int64_t value : head.results) {
      Json& meta = tensors.at(name_of(value));
      meta.at("sizes").back() = {{"as_int", classes_of(config_)}};
      meta.at("strides").front() = {{"as_int", classes_of(config_)}};
    }
    changed_[graph_member] = graph.dump();
    changed_[weights_config()] = weights.dump();
  }

  std::string weights_config() const { return std::string(kWeights) + name_ + std::string(kConfigEnding); }

  ModelConfig config_;
  ProgramSource original_, source_;  ///< as exported, and with the new last layer, if it has one
  const ProgramArchive& archive_;
  std::string name_;                            ///< which of the archive's programs it is
  std::map<std::string, std::string> changed_;  ///< bytes by member
  std::map<std::string, int64_t> new_offsets_;  ///< where parameters of the new last layer begin, in elements
};

}  // namespace

void save_program(const ModelConfig& config, const NamedTensors& weights, const std::filesystem::path& to) {
  std::error_code error;
  if (std::filesystem::exists(to, error))
    throw UserError(fmt::format("{} exists; name a new file", to.string()), ExitCode::storage);
  const std::filesystem::path folder = to.has_parent_path() ? to.parent_path() : ".";
  if (to.filename().empty() || !std::filesystem::is_directory(folder, error))
    throw UserError(fmt::format("cannot write {}: its folder does not exist", to.string()), ExitCode::storage);
  ModelConfig own = config;
  own.replace_head = false;
  ProgramSource original(own);
  if (config.replace_head) {
    own = config;
    own.num_classes = classes_in(weights, original);
  }
  ProgramWriter writer(own, std::move(original));
  writer.put(weights);
  writer.write(to);
}

}  // namespace trainopt
