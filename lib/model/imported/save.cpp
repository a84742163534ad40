#include "model/imported/save.h"

#include "base/error.h"
#include "base/json.h"
#include "device/tensor.h"
#include "model/imported/source.h"
#include "model/program/archive_copy.h"

#include <cstring>
#include <map>
#include <string>

namespace trainopt {
namespace {

constexpr std::string_view kConfigEnding = "_weights_config.json";

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

/// Sets what the format says of a tensor that lies in its member without gaps.
void describe(Json& meta, const std::vector<int64_t>& sizes) {
  meta["sizes"] = sizes_json(sizes);
  meta["strides"] = sizes_json(contiguous_strides(sizes));
  meta["storage_offset"] = {{"as_int", 0}};
}

/// How many classes the last layer of a run has, which may differ from those of the program as it was exported.
int64_t classes_in(const NamedTensors& weights, const ProgramSource& original) {
  if (original.head)
    for (const auto& [name, tensor] : weights)
      if (name == original.names.at(original.head->weight) && tensor.dim() == 2)
        return tensor.size(original.head->transposed ? 1 : 0);
  original.refuse("it has no last layer that the run could have replaced; it is not the program that was trained");
}

class ProgramWriter {
 public:
  /// `config`: with the number of classes that the weights have.
  ProgramWriter(const ModelConfig& config, ProgramSource original)
      : config_(config), original_(std::move(original)), source_(config), archive_(source_.program.archive()) {
    for (const std::string& name : archive_.names_in("data/weights/"))
      if (name.ends_with(kConfigEnding)) {
        if (!configs_.empty()) archive_.refuse("it has several programs; save the trained one alone in a file");
        configs_ = "data/weights/" + name;
      }
  }

  void put(const NamedTensors& weights) {
    std::map<std::string, at::Tensor> values(weights.begin(), weights.end());
    for (const auto& [name, tensor] : values) require_own(name, tensor);
    for (const ProgramInput& input : source_.program.inputs()) {
      const bool is_state =
          input.kind == ProgramInput::Kind::parameter || (input.kind == ProgramInput::Kind::buffer && input.persistent);
      const auto value = values.find(input.name);
      if (is_state && value != values.end()) put(input.name, value->second);
    }
  }

  void write(const std::filesystem::path& to) {
    if (config_.replace_head) describe_head();
    copy_archive(archive_, to, changed_);
  }

 private:
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
      const std::string& member = original_.program.stored(name).member;
      changed_[member].assign(static_cast<const char*>(as_stored.const_data_ptr()), as_stored.nbytes());
      return;
    }
    auto [bytes, is_first] = changed_.try_emplace(stored.member);
    std::string& content = bytes->second;
    if (is_first) {
      content.resize(archive_.size_of(stored.member));
      archive_.read(stored.member, {reinterpret_cast<uint8_t*>(content.data()), content.size()});
    }
    const int64_t elements = static_cast<int64_t>(content.size()) / bytes_of(stored.type);
    const at::Tensor member = at::from_blob(content.data(), {elements}, torch_type(stored.type));
    member.as_strided(stored.sizes, stored.strides, stored.offset).copy_(as_stored);
  }

  /// The graph and the list of weights name the sizes of the last layer.
  void describe_head() {
    const std::string model = "models/" + configs_.substr(std::strlen("data/weights/"));
    const std::string graph_member = model.substr(0, model.size() - kConfigEnding.size()) + ".json";
    Json graph = Json::parse(archive_.text_of(graph_member)), weights = Json::parse(archive_.text_of(configs_));
    Json& tensors = graph.at("graph_module").at("graph").at("tensor_values");
    const ProgramHead& head = *source_.head;
    const auto name_of = [&](int64_t value) { return source_.graph.values[static_cast<size_t>(value)].name; };
    const auto describe_parameter = [&](int64_t value) {
      const std::string& name = source_.names.at(value);
      const std::vector<int64_t>& sizes = source_.program.stored(name).sizes;
      describe(tensors.at(name_of(value)), sizes);
      describe(weights.at("config").at(name).at("tensor_meta"), sizes);
    };
    describe_parameter(head.weight);
    if (head.bias) describe_parameter(*head.bias);
    for (const int64_t value : head.results) {
      Json& meta = tensors.at(name_of(value));
      meta.at("sizes").back() = {{"as_int", classes_of(config_)}};
      meta.at("strides").front() = {{"as_int", classes_of(config_)}};
    }
    changed_[graph_member] = graph.dump();
    changed_[configs_] = weights.dump();
  }

  ModelConfig config_;
  ProgramSource original_, source_;  ///< as exported, and with the new last layer, if it has one
  const ProgramArchive& archive_;
  std::string configs_;                         ///< the member that lists the weights
  std::map<std::string, std::string> changed_;  ///< bytes by member
};

}  // namespace

void save_program(const ModelConfig& config, const NamedTensors& weights, const std::filesystem::path& to) {
  std::error_code error;
  if (std::filesystem::exists(to, error))
    throw UserError(fmt::format("{} exists; name a new file", to.string()), ExitCode::storage);
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
