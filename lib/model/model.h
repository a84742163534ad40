// A network: an ordered list of named units, and all parameters and buffers under the names of its usual files. A
// process may hold some of the units only (pipeline parallelism): then it has the tensors of those, runs those, and
// knows the shapes of the rest.
#pragma once

#include "model/builder.h"
#include "model/config.h"
#include "model/weights_file.h"

#include <functional>
#include <numeric>
#include <set>

namespace trainopt {

class Model {
 public:
  /// Takes over what the builder collected. Flops and output shape are computed for a sample of shape `input`.
  Model(Builder&& builder, const SampleShape& input);

  /// `input`: batch × sample. Runs the held units in order.
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context);

  // In torchvision's order, of the held units. The tensors are the model's own, not copies.
  NamedTensors parameters() const;
  NamedTensors buffers() const;
  NamedTensors state() const;  ///< both, as a checkpoint holds them
  /// Parameters and buffers of all units. What other processes hold is on the meta device.
  const std::vector<StateEntry>& entries() const { return entries_; }

  std::vector<ParameterKind> parameter_kinds() const;  ///< one for each of parameters()

  /// For each of parameters(), the handle in which to store a 16-bit copy of it; null if no layer would use one.
  std::vector<WeightCopy> weight_copies() const;

  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }
  /// Parameters and buffers of one unit; wrapping does not change them.
  NamedTensors unit_state(size_t unit) const;
  /// The parameters that this unit computes with: its own, and those of other units (tied weights).
  NamedTensors unit_parameters(size_t unit) const;
  /// The units whose parameters this unit computes with besides its own (tied weights), each once.
  std::vector<size_t> units_shared_by(size_t unit) const;
  /// What units leave to later ones beside their output.
  const PassedValues& passed_values() const { return passed_; }
  /// Replaces each unit by what `wrap` returns for it.
  void wrap_units(const std::function<std::unique_ptr<Unit>(std::unique_ptr<Unit>)>& wrap);

  /// Sets the operations that the units call from now on. None may be null.
  void set_operations(Operations operations);

  /// Converts the 4-D parameters to `format`; they stay the same tensors. Call it before anything uses their storage
  /// (optimizer, reducer).
  void to_memory_format(at::MemoryFormat format);
  /// Rounds the parameters with these names to `type`; they stay the same tensors. The same restriction applies.
  void to_type(const std::set<std::string>& names, at::ScalarType type);

  /// Loads safetensors files (trained_weights.h) with exactly the model's names, shapes and types, or 16-bit values in
  /// place of float32. num_batches_tracked may be absent and then stays unchanged. If `keeps_head`, the last layer
  /// keeps its values, and the files may have any or none for it. Throws UserError(checkpoint) with the first
  /// differences.
  void load_weights(const std::filesystem::path& path, bool keeps_head = false);
  /// What load_weights() would change so that the files fit, from their headers alone; also on the meta device. Throws
  /// UserError(checkpoint) if they do not fit.
  std::vector<std::string> fit_weights(const std::filesystem::path& path, bool keeps_head = false) const;
  /// Parameters or buffers of this model as its files hold them.
  NamedTensors as_in_files(NamedTensors tensors) const;
  void save_weights(const std::filesystem::path& path, const SafetensorsMetadata& metadata = {}) const;

  at::Device device() const { return device_; }
  int64_t parameter_count() const;  ///< elements, not tensors
  LayerCounts layer_counts() const;
  /// All units' FLOPs. Forward pass; convolutions, linear layers and attention; 2 × multiply-adds.
  double flops_per_sample() const { return std::accumulate(unit_flops_.begin(), unit_flops_.end(), 0.0); }
  /// Each unit's FLOPs per sample.
  const std::vector<double>& unit_flops() const { return unit_flops_; }
  /// Shapes of one sample: the first unit's input, and each unit's output.
  const std::vector<SampleShape>& shapes() const { return shapes_; }
  const SampleShape& output_shape() const { return shapes_.back(); }

 private:
  NamedTensors select(const std::function<bool(const StateEntry&)>& wanted) const;

  at::Device device_;
  std::vector<StateEntry> entries_;
  std::vector<std::unique_ptr<Unit>> units_;
  LayerCounts layers_;  ///< without those that the parameters show
  UnitRange held_;
  NameOfFile name_of_file_;
  PassedValues passed_;
  std::shared_ptr<Operations> operations_;  ///< shared with the units
  std::vector<double> unit_flops_;
  std::vector<SampleShape> shapes_;
};

/// A batch without values: on the meta device, as the trainer would give it. The target is int64: batch, or batch ×
/// tokens.
struct ShapeOfBatch {
  at::Tensor input, target;
};
ShapeOfBatch shape_of_batch(const InputShape& sample, int64_t batch);

/// Builds the network on `device`; on meta it has shapes but no values. Initial values are drawn from `seed`, or loaded
/// from `config.weights`. `held`: the units that this process holds.
Model make_model(const ModelConfig& config, const InputShape& input, at::Device device, uint64_t seed,
                 const UnitRange& held = {});

}  // namespace trainopt
