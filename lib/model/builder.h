// Builds a network: creates its tensors on a device, sets their initial values and records them in order.
#pragma once

#include "model/initial_values.h"
#include "model/operations.h"
#include "model/unit.h"
#include "model/weight_copy.h"

#include <functional>
#include <map>

namespace trainopt {

/// What an optimizer may treat differently. `norm`: weights and biases of batch-norm and layer norm.
enum class ParameterKind { other, norm, embedding };

/// A parameter or buffer under its full name, such as "layer1.0.conv1.weight".
struct StateEntry {
  std::string name;
  at::Tensor tensor;
  bool trainable;
  size_t unit;                       ///< index of the unit that holds it
  std::vector<size_t> also_in = {};  ///< other units that compute with it
  WeightCopy copy = nullptr;         ///< the 16-bit copy its layer would use; null if the layer uses none
  bool transposed_in_files = false;
  ParameterKind kind = ParameterKind::other;
};

using FileTensors = std::map<std::string, at::Tensor>;
/// Turns the names and tensors of a file of weights into those of the model.
using AdaptFile = std::function<void(FileTensors& tensors)>;

class Builder {
 public:
  Builder(at::Device device, uint64_t seed);

  /// A float32 tensor that requires gradients; without values on the meta device. Names are unique.
  at::Tensor parameter(const std::string& name, at::IntArrayRef shape, const InitialValues& values,
                       ParameterKind kind = ParameterKind::other);
  /// The handle through which a layer finds the 16-bit copy of this parameter, if one is ever stored. The parameter
  /// must exist already.
  WeightCopy copy_of(const std::string& name);
  /// A parameter of an earlier unit with which the current one computes, too (tied weights).
  at::Tensor shared(const std::string& name);
  /// Files hold this matrix transposed.
  void transpose_in_files(const std::string& name);
  void adapt_file_by(AdaptFile adapt) { adapt_file_ = std::move(adapt); }
  at::Tensor buffer(const std::string& name, at::IntArrayRef shape, at::ScalarType type, double value);

  /// Constructs a unit of type U from (builder, arguments...) and appends it. Tensors that its constructor requests
  /// belong to it.
  template <class U, class... Arguments>
  void add(Arguments&&... arguments) {
    auto unit = std::make_unique<U>(*this, std::forward<Arguments>(arguments)...);
    units_.push_back(std::move(unit));
  }

  /// The operations that this model's layers call. The model can replace them later.
  std::shared_ptr<const Operations> operations() const { return operations_; }

 private:
  friend class Model;
  StateEntry& entry_of(const std::string& name);

  at::Device device_;
  uint64_t seed_;
  std::vector<StateEntry> entries_;
  std::vector<std::unique_ptr<Unit>> units_;
  AdaptFile adapt_file_;
  std::shared_ptr<Operations> operations_ = std::make_shared<Operations>();
};

}  // namespace trainopt
