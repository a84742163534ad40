// A 16-bit copy of a parameter, kept by whoever updates the parameter: autocast would cast the parameter in every step.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace trainopt {

/// Shared by a layer and the model; undefined: nobody keeps a copy.
using WeightCopy = std::shared_ptr<at::Tensor>;

/// What a layer computes with: the copy, where autocast would make the same of the parameter; its gradient goes on to
/// the parameter, as float32. Otherwise the parameter.
at::Tensor as_autocast(const at::Tensor& parameter, const WeightCopy& copy);

}  // namespace trainopt
