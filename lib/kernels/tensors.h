// What a kernel's caller needs to know of tensors.
#pragma once

#include "kernels/dtype.h"

#include <ATen/core/Tensor.h>

namespace trainopt::kernels {

/// Throws BrokenInvariant for a type that kernels do not take.
DType dtype_of(at::ScalarType type);
/// Where kernels for this device go now; null for the CPU.
void* queue_of(at::Device device);

}  // namespace trainopt::kernels
