#include "model/builder.h"

#include "base/error.h"
#include "device/tensor.h"

#include <algorithm>

namespace trainopt {

Builder::Builder(at::Device device, uint64_t seed, const UnitRange& held) : device_(device), seed_(seed), held_(held) {}

at::Tensor shape_only(at::IntArrayRef shape, at::ScalarType type) {
  return at::empty({}, at::TensorOptions(type).device(at::kMeta)).expand(shape);
}

at::Tensor Builder::new_parameter(const std::string& name, at::IntArrayRef shape, const InitialValues& values) const {
  at::Tensor tensor;
  if (device_.is_meta()) {
    tensor = at::empty(shape, at::TensorOptions(at::kFloat).device(device_));
  } else {
    tensor = at::empty(shape, at::TensorOptions(at::kFloat));
    fill_initial_values(tensor, values, seed_, name);
    tensor = tensor.to(device_);
  }
  return tensor.set_requires_grad(true);
}

at::Tensor Builder::parameter(const std::string& name, at::IntArrayRef shape, const InitialValues& values,
                              ParameterKind kind) {
  const bool held = held_.contains(units_.size());
  const at::Tensor tensor =
      held ? new_parameter(name, shape, values) : shape_only(shape, at::kFloat).set_requires_grad(true);
  entries_.push_back({.name = name,
                      .tensor = tensor,
                      .trainable = true,
                      .unit = units_.size(),
                      .kind = kind,
                      .values = values,
                      .held = held});
  return tensor;
}

/// From the end: a layer asks for what it has just created.
StateEntry& Builder::entry_of(const std::string& name) {
  const auto entry =
      std::find_if(entries_.rbegin(), entries_.rend(), [&](const StateEntry& known) { return known.name == name; });
  TRAINOPT_CHECK(entry != entries_.rend());
  return *entry;
}

WeightCopy Builder::copy_of(const std::string& name) {
  WeightCopy& copy = entry_of(name).copy;
  TRAINOPT_CHECK(!copy);
  return copy = std::make_shared<at::Tensor>();
}

at::Tensor Builder::shared(const std::string& name, const std::function<at::Tensor()>& values) {
  StateEntry& entry = entry_of(name);
  TRAINOPT_CHECK(entry.unit < units_.size());
  if (entry.also_in.empty() || entry.also_in.back() != units_.size()) entry.also_in.push_back(units_.size());
  if (!entry.held && held_.contains(units_.size())) {  // this process has the later unit only
    entry.tensor = values && !device_.is_meta() ? values().to(device_).set_requires_grad(true)
                                                : new_parameter(name, entry.tensor.sizes(), entry.values);
    entry.held = true;
  }
  return entry.tensor;
}

void Builder::transpose_in_files(const std::string& name) { entry_of(name).transposed_in_files = true; }

at::Tensor Builder::buffer(const std::string& name, at::IntArrayRef shape, at::ScalarType type, double value) {
  const bool held = held_.contains(units_.size());
  const at::Tensor tensor =
      held ? at::full(shape, value, at::TensorOptions(type).device(device_)) : shape_only(shape, type);
  entries_.push_back({.name = name, .tensor = tensor, .trainable = false, .unit = units_.size(), .held = held});
  return tensor;
}

at::Tensor Builder::stored(const std::string& name, at::IntArrayRef shape, at::ScalarType type, bool trainable,
                           ParameterKind kind, const std::function<at::Tensor()>& values) {
  const bool held = held_.contains(units_.size());
  at::Tensor tensor;
  if (!held)
    tensor = shape_only(shape, type);
  else if (device_.is_meta())
    tensor = at::empty(shape, at::TensorOptions(type).device(device_));
  else
    tensor = values().to(device_);
  if (trainable) tensor.set_requires_grad(true);
  entries_.push_back(
      {.name = name, .tensor = tensor, .trainable = trainable, .unit = units_.size(), .kind = kind, .held = held});
  return tensor;
}

}  // namespace trainopt
