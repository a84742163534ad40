// What a network is built with: it makes the tensors on the wanted device, gives them their initial values and keeps
// them in order.
#pragma once

#include "model/initial_values.h"
#include "model/operations.h"
#include "model/unit.h"
#include "model/weight_copy.h"

namespace trainopt {

/// A parameter or buffer under its full name, such as "layer1.0.conv1.weight".
struct StateEntry {
  std::string name;
  at::Tensor tensor;
  bool trainable;
  size_t unit;                ///< index of the unit that holds it
  WeightCopy copy = nullptr;  ///< where its layer would use one
};

class Builder {
 public:
  Builder(at::Device device, uint64_t seed);

  /// float32, requires gradients; on the meta device without values. Names are unique.
  at::Tensor parameter(const std::string& name, at::IntArrayRef shape, const InitialValues& values);
  /// Where the layer of this parameter, which was made before, finds its 16-bit copy, if there ever is one.
  WeightCopy copy_of(const std::string& name);
  at::Tensor buffer(const std::string& name, at::IntArrayRef shape, at::ScalarType type, double value);

  /// Makes a unit of type U from (builder, arguments...) and appends it; what the unit asks for meanwhile belongs to
  /// it.
  template <class U, class... Arguments>
  void add(Arguments&&... arguments) {
    auto unit = std::make_unique<U>(*this, std::forward<Arguments>(arguments)...);
    units_.push_back(std::move(unit));
  }

  /// What the layers of this model compute with; the model can exchange it under them.
  std::shared_ptr<const Operations> operations() const { return operations_; }

 private:
  friend class Model;

  at::Device device_;
  uint64_t seed_;
  std::vector<StateEntry> entries_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::shared_ptr<Operations> operations_ = std::make_shared<Operations>();
};

}  // namespace trainopt
