// A network: named units in order, and every parameter and buffer under torchvision's name.
#pragma once

#include "model/builder.h"
#include "model/config.h"
#include "model/tensor_file.h"

#include <functional>

namespace trainopt {

struct InputShape {
  int64_t channels = 3, height = 224, width = 224;
  bool operator==(const InputShape&) const = default;
};

class Model {
 public:
  /// Takes what the builder collected; `input` is what flops and output shape are counted for.
  Model(Builder&& builder, const SampleShape& input);

  /// `input`: batch × sample. Runs the units in order.
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context);

  // All three in torchvision's order. The tensors are the model's own, not copies.
  NamedTensors parameters() const;
  NamedTensors buffers() const;
  NamedTensors state() const;  ///< both, as a checkpoint holds them

  /// For each of parameters(): where a 16-bit copy of it may be put; null where no layer would use it.
  std::vector<WeightCopy> weight_copies() const;

  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }
  /// Parameters and buffers of one unit; wrapping does not change them.
  NamedTensors unit_state(size_t unit) const;
  /// Replaces each unit by what `wrap` makes of it.
  void wrap_units(const std::function<std::unique_ptr<Unit>(std::unique_ptr<Unit>)>& wrap);

  /// What the units compute with from now on; none of them may be null.
  void set_operations(Operations operations);

  /// Rearranges the 4-D parameters in memory; they stay the same tensors. Before anything looks at their storage
  /// (optimizer, reducer).
  void to_memory_format(at::MemoryFormat format);

  /// From a safetensors file with exactly our names, shapes and types; num_batches_tracked may be absent and is then
  /// left as it is. Throws UserError(checkpoint) with the first ten differences.
  void load_weights(const std::filesystem::path& path);
  void save_weights(const std::filesystem::path& path, const SafetensorsMetadata& metadata = {}) const;

  at::Device device() const { return device_; }
  int64_t parameter_count() const;  ///< numbers, not tensors
  bool has_convolutions() const;    ///< whether any parameter is a filter
  double flops_per_sample() const {
    return flops_per_sample_;
  }  ///< forward, convolutions and linear layers, 2 × multiply-adds
  const SampleShape& output_shape() const { return output_shape_; }

 private:
  NamedTensors select(const std::function<bool(const StateEntry&)>& wanted) const;

  at::Device device_;
  std::vector<StateEntry> entries_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::shared_ptr<Operations> operations_;  ///< that the units know too
  double flops_per_sample_ = 0;
  SampleShape output_shape_;
};

/// Builds the network on `device`; on meta it has shapes and no values. Initial values are those of `seed`, or of
/// `config.weights`.
Model make_model(const ModelConfig& config, const InputShape& input, at::Device device, uint64_t seed);

}  // namespace trainopt
