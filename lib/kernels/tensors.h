// Helpers for code that passes tensors to kernels.
#pragma once

#include "kernels/dtype.h"

#include <ATen/core/Tensor.h>

namespace trainopt::kernels {

/// Throws BrokenInvariant for a type that kernels do not support.
DType dtype_of(at::ScalarType type);
/// The tensor itself if it is NHWC (channels-last) already, otherwise a copy that is.
at::Tensor nhwc(const at::Tensor& tensor);
/// Values per channel of an image batch [N, C, H, W].
int64_t values_per_channel(const at::Tensor& images);
/// The queue that kernels for this device are launched on; null unless it is a GPU.
void* queue_of(at::Device device);

}  // namespace trainopt::kernels
