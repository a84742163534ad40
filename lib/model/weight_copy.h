// A 16-bit copy of a parameter, maintained by the code that updates the parameter, so that autocast need not cast it in
// every step.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace trainopt {

/// Shared by a layer and the model. The tensor is undefined if there is no copy.
using WeightCopy = std::shared_ptr<at::Tensor>;

/// The tensor that a layer computes with: the copy if autocast would cast the parameter to the same type, with its
/// gradient passed to the parameter as float32; otherwise the parameter.
at::Tensor as_autocast(const at::Tensor& parameter, const WeightCopy& copy);

}  // namespace trainopt
