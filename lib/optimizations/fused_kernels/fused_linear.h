// Linear layers whose float32 products oneDNN computes where that is faster than libtorch's choice (device/product.h).
#pragma once

#include "model/operations.h"

#include <memory>

namespace trainopt::fused_kernels {

// RECORD_FUNCTION labels: a layer computed here, and its backward.
inline constexpr const char *kLinearLabel = "trainopt::linear", *kLinearGradientLabel = "trainopt::linear_backward";

/// Layers that another library does not speed up, and all of them under autocast, are left to `inner`. Returns `inner`
/// itself if it rounds its operands.
std::unique_ptr<LinearOperations> make_fused_linear(std::unique_ptr<LinearOperations> inner);

}  // namespace trainopt::fused_kernels
