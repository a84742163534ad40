// Helpers for code that passes tensors to kernels.
#pragma once

#include "kernels/dtype.h"

#include <ATen/core/Tensor.h>

namespace trainopt::kernels {

/// Throws BrokenInvariant for a type that kernels do not support.
DType dtype_of(at::ScalarType type);
/// The tensor itself if it is NHWC (channels-last) already, otherwise a copy that is.
at::Tensor nhwc(const at::Tensor& tensor);
/// The values in float32; the tensor itself if they are already.
at::Tensor wide(const at::Tensor& tensor);
/// A tensor without values or gradient, on the device of `beside`.
at::Tensor empty_beside(at::IntArrayRef sizes, const at::Tensor& beside, at::ScalarType type = at::kFloat,
                        at::MemoryFormat format = at::MemoryFormat::Contiguous);
/// Values per channel of an image batch [N, C, H, W].
int64_t values_per_channel(const at::Tensor& images);
/// The queue that kernels for this device are launched on; null unless it is a GPU.
void* queue_of(at::Device device);

}  // namespace trainopt::kernels
