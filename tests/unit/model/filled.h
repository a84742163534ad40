// Weights and inputs from a formula that Python can reproduce bit for bit: element i of tensor n is a hash of i and n.
#pragma once

#include "device/tensor.h"
#include "model/model.h"

#include <cmath>

namespace trainopt {

inline void fill_by_formula(at::Tensor tensor, uint32_t index, double middle, double amount) {
  const at::Tensor values = at::empty(tensor.sizes(), at::TensorOptions(at::kFloat));
  float* value = values.mutable_data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    uint32_t hash = static_cast<uint32_t>(i + 1) * 2654435761u + index * 40503u;
    hash = (hash ^ hash >> 16) * 0x85ebca6bu;
    hash = (hash ^ hash >> 13) * 0xc2b2ae35u;
    hash ^= hash >> 16;
    value[i] = static_cast<float>(middle + amount * (hash / 2147483648.0 - 1));
  }
  const at::NoGradGuard no_grad;
  tensor.copy_(values);
}

/// Fills every floating-point tensor of the model's state, with variances close to those of real weights.
inline void fill_by_formula(const Model& model) {
  uint32_t index = 0;
  for (const auto& [name, tensor] : model.state()) {
    const auto size = tensor.sizes();
    if (tensor.dim() == 4)
      fill_by_formula(tensor, index, 0, std::sqrt(6.0 / static_cast<double>(size[0] * size[2] * size[3])));
    else if (tensor.dim() == 2)
      fill_by_formula(tensor, index, 0, 1 / std::sqrt(static_cast<double>(size[1])));
    else if (name.ends_with("running_var") || name.ends_with("weight"))
      fill_by_formula(tensor, index, 1, 0.2);
    else if (tensor.is_floating_point())
      fill_by_formula(tensor, index, 0, 0.1);
    ++index;
  }
}

inline at::Tensor input_by_formula(at::IntArrayRef shape) {
  const at::Tensor input = at::empty(shape, at::TensorOptions(at::kFloat));
  fill_by_formula(input, 500, 0, 1.5);
  return input;
}

}  // namespace trainopt
