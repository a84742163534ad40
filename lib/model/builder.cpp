#include "model/builder.h"

#include "base/error.h"
#include "device/tensor.h"

#include <algorithm>

namespace trainopt {

Builder::Builder(at::Device device, uint64_t seed, const UnitRange& held) : device_(device), seed_(seed), held_(held) {}

at::Tensor Builder::new_parameter(const std::string& name, at::IntArrayRef shape, const InitialValues& values,
                                  at::Device device) const {
  at::Tensor tensor;
  if (device.is_meta()) {
    tensor = at::empty(shape, at::TensorOptions(at::kFloat).device(device));
  } else {
    tensor = at::empty(shape, at::TensorOptions(at::kFloat));
    fill_initial_values(tensor, values, seed_, name);
    tensor = tensor.to(device);
  }
  return tensor.set_requires_grad(true);
}

at::Tensor Builder::parameter(const std::string& name, at::IntArrayRef shape, const InitialValues& values,
                              ParameterKind kind) {
  const bool held = held_.contains(units_.size());
  const at::Tensor tensor = new_parameter(name, shape, values, held ? device_ : at::kMeta);
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

at::Tensor Builder::shared(const std::string& name) {
  StateEntry& entry = entry_of(name);
  TRAINOPT_CHECK(entry.unit < units_.size());
  entry.also_in.push_back(units_.size());
  if (!entry.held && held_.contains(units_.size())) {  // this process has the later unit only
    entry.tensor = new_parameter(name, entry.tensor.sizes(), entry.values, device_);
    entry.held = true;
  }
  return entry.tensor;
}

void Builder::transpose_in_files(const std::string& name) { entry_of(name).transposed_in_files = true; }

at::Tensor Builder::buffer(const std::string& name, at::IntArrayRef shape, at::ScalarType type, double value) {
  const bool held = held_.contains(units_.size());
  const at::Tensor tensor = at::full(shape, value, at::TensorOptions(type).device(held ? device_ : at::kMeta));
  entries_.push_back({.name = name, .tensor = tensor, .trainable = false, .unit = units_.size(), .held = held});
  return tensor;
}

}  // namespace trainopt
