// Helpers for code that passes tensors to kernels.
#pragma once

#include "kernels/dtype.h"

#include <ATen/core/Tensor.h>

namespace trainopt::kernels {

/// Throws BrokenInvariant for a type that kernels do not support.
DType dtype_of(at::ScalarType type);
/// The queue that kernels for this device are launched on; null for the CPU.
void* queue_of(at::Device device);

}  // namespace trainopt::kernels
