#include "model/model.h"

#include "base/error.h"
#include "device/tensor.h"
#include "model/imported/imported.h"
#include "model/networks.h"

#include <algorithm>
#include <array>
#include <set>

namespace trainopt {
namespace {

/// Convolution filters are the only parameters with four dimensions.
bool is_filter(const StateEntry& entry) { return entry.trainable && entry.tensor.dim() == 4; }

}  // namespace

Model::Model(Builder&& builder, const SampleShape& input)
    : device_(builder.device_),
      entries_(std::move(builder.entries_)),
      units_(std::move(builder.units_)),
      layers_(std::move(builder.layers_)),
      held_(builder.held_),
      name_of_file_(std::move(builder.name_of_file_)),
      passed_(std::move(builder.passed_)),
      operations_(std::move(builder.operations_)),
      shapes_{input} {
  std::set<std::string> names;
  for (auto& entry : entries_) {
    TRAINOPT_CHECK(names.insert(entry.name).second);
    entry.in_head |= !layers_.imported && entry.unit + 1 == units_.size();
  }
  for (const auto& unit : units_) shapes_.push_back(unit->shape_after(shapes_.back(), unit_flops_.emplace_back(0)));
}

at::Tensor Model::forward(const at::Tensor& input, const ForwardContext& context) {
  at::Tensor x = input;
  ForwardContext of_batch = context;
  if (!of_batch.side) of_batch.side = std::make_shared<SideValues>();
  for (size_t unit = held_.first; unit < std::min(held_.end, units_.size()); ++unit)
    x = units_[unit]->forward(x, of_batch);
  return x;
}

NamedTensors Model::select(const std::function<bool(const StateEntry&)>& wanted) const {
  NamedTensors tensors;
  for (const auto& entry : entries_)
    if (entry.held && wanted(entry)) tensors.emplace_back(entry.name, entry.tensor);
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
std::vector<ParameterKind> Model::parameter_kinds() const {
  std::vector<ParameterKind> kinds;
  for (const auto& entry : entries_)
    if (entry.held && entry.trainable) kinds.push_back(entry.kind);
  return kinds;
}
std::vector<WeightCopy> Model::weight_copies() const {
  std::vector<WeightCopy> copies;
  for (const auto& entry : entries_)
    if (entry.held && entry.trainable) copies.push_back(entry.copy);
  return copies;
}
NamedTensors Model::unit_state(size_t unit) const {
  return select([&](const StateEntry& entry) { return entry.unit == unit; });
}

NamedTensors Model::unit_parameters(size_t unit) const {
  return select([&](const StateEntry& entry) {
    return entry.trainable &&
           (entry.unit == unit || std::find(entry.also_in.begin(), entry.also_in.end(), unit) != entry.also_in.end());
  });
}

std::vector<size_t> Model::units_shared_by(size_t unit) const {
  std::set<size_t> shared;
  for (const auto& entry : entries_)
    if (std::find(entry.also_in.begin(), entry.also_in.end(), unit) != entry.also_in.end()) shared.insert(entry.unit);
  return {shared.begin(), shared.end()};
}

void Model::wrap_units(const std::function<std::unique_ptr<Unit>(std::unique_ptr<Unit>)>& wrap) {
  for (auto& unit : units_) {
    unit = wrap(std::move(unit));
    TRAINOPT_CHECK(unit != nullptr);
  }
}

void Model::set_operations(Operations operations) {
  TRAINOPT_CHECK(operations.convolution && operations.batch_norm && operations.head && operations.attention &&
                 operations.layer_norm && operations.gelu && operations.language_head && operations.linear);
  *operations_ = std::move(operations);
}

void Model::to_memory_format(at::MemoryFormat format) {
  const at::NoGradGuard no_grad;
  for (auto& entry : entries_)
    // Not contiguous(): a 1×1 filter counts as both formats, so its strides would stay and differ from its gradient's.
    if (entry.held && is_filter(entry))
      entry.tensor.set_data(at::empty_like(entry.tensor, entry.tensor.options(), format).copy_(entry.tensor));
}

void Model::to_type(const std::set<std::string>& names, at::ScalarType type) {
  for (auto& entry : entries_)
    if (names.contains(entry.name))
      entry.tensor.set_data(entry.held ? entry.tensor.detach().to(type) : shape_only(entry.tensor.sizes(), type));
}

NamedTensors Model::as_in_files(NamedTensors tensors) const {
  for (const auto& entry : entries_)
    if (entry.transposed_in_files)
      for (auto& [name, tensor] : tensors)
        if (name == entry.name) tensor = tensor.detach().t().contiguous();
  return tensors;
}

void Model::save_weights(const std::filesystem::path& path, const SafetensorsMetadata& metadata) const {
  save_tensors(path, as_in_files(state()), metadata);
}

int64_t Model::parameter_count() const {
  int64_t count = 0;
  for (const auto& entry : entries_)
    if (entry.trainable) count += entry.tensor.numel();
  return count;
}

LayerCounts Model::layer_counts() const {
  LayerCounts counts = layers_;
  if (counts.imported) return counts;
  for (const auto& entry : entries_) {
    if (is_filter(entry)) ++(entry.tensor.size(2) == 3 ? counts.convolutions_3x3 : counts.other_convolutions);
    if (entry.name.ends_with(".running_mean")) {
      ++counts.batch_norms;
      // No unit enlarges its input, so none of its batch-norms sees less than the unit returns.
      const SampleShape& shape = shapes_[entry.unit + 1];
      counts.saw_norm_of(std::accumulate(shape.begin() + 1, shape.end(), int64_t{1}, std::multiplies()));
    }
    if (entry.tensor.dim() == 2 && entry.kind == ParameterKind::other)
      counts.linears.push_back({.in = entry.tensor.size(1), .out = entry.tensor.size(0)});
  }
  return counts;
}

namespace {

/// How each network of the catalogue is built.
struct BuiltModel {
  ModelKind kind;
  void (*build)(Builder&, const ModelConfig&, const InputShape&);
};
constexpr std::array kBuilt = {
    BuiltModel{ModelKind::resnet18, build_resnet}, BuiltModel{ModelKind::resnet34, build_resnet},
    BuiltModel{ModelKind::resnet50, build_resnet}, BuiltModel{ModelKind::convnext_tiny, build_convnext},
    BuiltModel{ModelKind::vit_s_16, build_vit},    BuiltModel{ModelKind::vit_b_16, build_vit},
    BuiltModel{ModelKind::vit, build_vit},         BuiltModel{ModelKind::gpt2, build_gpt2},
    BuiltModel{ModelKind::mlp, build_mlp},         BuiltModel{ModelKind::exported, build_exported}};

SampleShape sample_shape(const InputShape& input) {
  return input.is_text() ? SampleShape{input.tokens} : SampleShape{input.channels, input.height, input.width};
}

static_assert(std::ranges::equal(kBuilt, kModels, {}, &BuiltModel::kind, &ModelTraits::kind));

}  // namespace

ShapeOfBatch shape_of_batch(const InputShape& sample, int64_t batch) {
  const auto floats = at::TensorOptions(at::kMeta), integers = floats.dtype(at::kLong);
  if (sample.is_text())
    return {at::empty({batch, sample.tokens}, integers), at::empty({batch, sample.tokens}, integers)};
  return {at::empty({batch, sample.channels, sample.height, sample.width}, floats), at::empty({batch}, integers)};
}

Model make_model(const ModelConfig& config, const InputShape& input, at::Device device, uint64_t seed,
                 const UnitRange& held) {
  const auto built =
      std::find_if(kBuilt.begin(), kBuilt.end(), [&](const auto& each) { return each.kind == config.name; });
  TRAINOPT_CHECK(built != kBuilt.end());
  Builder builder(device, seed, held);
  builder.layers().draws =
      config.dropout > 0 || (traits_of(config.name).has("stochastic_depth") && config.stochastic_depth > 0);
  built->build(builder, config, input);
  Model model(std::move(builder), sample_shape(input));
  if (config.weights && !device.is_meta()) model.load_weights(*config.weights, config.replace_head);
  return model;
}

}  // namespace trainopt
