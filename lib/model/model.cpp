#include "model/model.h"

#include "base/error.h"
#include "device/tensor.h"
#include "model/mlp.h"
#include "model/resnet.h"

#include <algorithm>
#include <map>
#include <set>

namespace trainopt {
namespace {

constexpr std::string_view kOptionalEnding =
    ".num_batches_tracked";  // files from before PyTorch 0.4.1 lack it, and no result depends on it
constexpr size_t kDifferencesShown = 10;

/// Convolution filters are the only parameters with four dimensions.
bool is_filter(const StateEntry& entry) { return entry.trainable && entry.tensor.dim() == 4; }

std::string describe_tensor(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", at::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

/// How the file's tensors differ from the model's state, in the model's order.
std::vector<std::string> differences_between(const std::vector<StateEntry>& entries,
                                             const std::map<std::string, at::Tensor>& file) {
  std::vector<std::string> differences;
  std::set<std::string> known;
  for (const auto& [name, tensor, trainable, unit, copy] : entries) {
    known.insert(name);
    const auto found = file.find(name);
    if (found == file.end()) {
      if (!name.ends_with(kOptionalEnding)) differences.push_back(fmt::format("{} is missing", name));
    } else if (found->second.sizes() != tensor.sizes() || found->second.scalar_type() != tensor.scalar_type()) {
      differences.push_back(
          fmt::format("{} is {} and not {}", name, describe_tensor(found->second), describe_tensor(tensor)));
    }
  }
  for (const auto& [name, tensor] : file)
    if (!known.contains(name)) differences.push_back(fmt::format("{} is unexpected", name));
  return differences;
}

}  // namespace

Model::Model(Builder&& builder, const SampleShape& input)
    : device_(builder.device_),
      entries_(std::move(builder.entries_)),
      units_(std::move(builder.units_)),
      operations_(std::move(builder.operations_)),
      output_shape_(input) {
  std::set<std::string> names;
  for (const auto& entry : entries_) TRAINOPT_CHECK(names.insert(entry.name).second);
  for (const auto& unit : units_) output_shape_ = unit->trace(output_shape_, flops_per_sample_);
}

at::Tensor Model::forward(const at::Tensor& input, const ForwardContext& context) {
  at::Tensor x = input;
  for (const auto& unit : units_) x = unit->forward(x, context);
  return x;
}

NamedTensors Model::select(const std::function<bool(const StateEntry&)>& wanted) const {
  NamedTensors tensors;
  for (const auto& entry : entries_)
    if (wanted(entry)) tensors.emplace_back(entry.name, entry.tensor);
  return tensors;
}

NamedTensors Model::parameters() const {
  return select([](const StateEntry& entry) { return entry.trainable; });
}
NamedTensors Model::buffers() const {
  return select([](const StateEntry& entry) { return !entry.trainable; });
}
NamedTensors Model::state() const {
  return select([](const StateEntry&) { return true; });
}
std::vector<WeightCopy> Model::weight_copies() const {
  std::vector<WeightCopy> copies;
  for (const auto& entry : entries_)
    if (entry.trainable) copies.push_back(entry.copy);
  return copies;
}
NamedTensors Model::unit_state(size_t unit) const {
  return select([&](const StateEntry& entry) { return entry.unit == unit; });
}

void Model::wrap_units(const std::function<std::unique_ptr<Unit>(std::unique_ptr<Unit>)>& wrap) {
  for (auto& unit : units_) {
    unit = wrap(std::move(unit));
    TRAINOPT_CHECK(unit != nullptr);
  }
}

void Model::set_operations(Operations operations) {
  TRAINOPT_CHECK(operations.convolution && operations.batch_norm && operations.head);
  *operations_ = std::move(operations);
}

void Model::to_memory_format(at::MemoryFormat format) {
  const at::NoGradGuard no_grad;
  for (auto& entry : entries_)
    // Not contiguous(): a 1×1 filter counts as both formats, so its strides would stay and differ from its gradient's.
    if (is_filter(entry))
      entry.tensor.set_data(at::empty_like(entry.tensor, entry.tensor.options(), format).copy_(entry.tensor));
}

void Model::load_weights(const std::filesystem::path& path) {
  TRAINOPT_CHECK(!device_.is_meta());
  std::map<std::string, at::Tensor> file;
  for (auto& [name, tensor] : load_tensors(path)) file.emplace(name, std::move(tensor));
  auto differences = differences_between(entries_, file);
  if (!differences.empty()) {
    const size_t total = differences.size();
    const std::string more = total > kDifferencesShown ? fmt::format("; and {} more", total - kDifferencesShown) : "";
    differences.resize(std::min(total, kDifferencesShown));
    throw UserError(fmt::format("the weights in {} do not fit the model, {} difference{}: {}{}", path.string(), total,
                                total == 1 ? "" : "s", fmt::join(differences, "; "), more),
                    ExitCode::checkpoint);
  }
  const at::NoGradGuard no_grad;
  for (auto& entry : entries_)
    if (const auto found = file.find(entry.name); found != file.end()) entry.tensor.copy_(found->second);
}

void Model::save_weights(const std::filesystem::path& path, const SafetensorsMetadata& metadata) const {
  save_tensors(path, state(), metadata);
}

int64_t Model::parameter_count() const {
  int64_t count = 0;
  for (const auto& entry : entries_)
    if (entry.trainable) count += entry.tensor.numel();
  return count;
}

bool Model::has_convolutions() const { return std::any_of(entries_.begin(), entries_.end(), is_filter); }

Model make_model(const ModelConfig& config, const InputShape& input, at::Device device, uint64_t seed) {
  Builder builder(device, seed);
  if (config.name == ModelKind::mlp)
    build_mlp(builder, config, input.channels * input.height * input.width);
  else
    build_resnet(builder, config, input.channels);
  Model model(std::move(builder), {input.channels, input.height, input.width});
  if (config.weights && !device.is_meta()) model.load_weights(*config.weights);
  return model;
}

}  // namespace trainopt
