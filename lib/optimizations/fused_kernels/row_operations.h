// The layer norms and GELUs of a transformer and their gradients, on fused kernels.
#pragma once

#include "kernels/gelu/gelu.h"
#include "kernels/layer_norm/layer_norm.h"
#include "model/operations.h"

#include <memory>

namespace trainopt::fused_kernels {

/// The kernels of one device. They must outlive their users.
struct RowKernels {
  const kernels::LayerNormKernels& layer_norm;
  const kernels::GeluKernels& gelu;
};

/// `device`: the meta device, the CPU, or a GPU of this process.
RowKernels row_kernels_for(at::Device device);

/// Normalised values have autocast's type while it is enabled, since a linear layer follows.
std::unique_ptr<LayerNormOperations> make_fused_layer_norm(const RowKernels& kernels);
/// The linear layer's product is libtorch's; its bias is added together with GELU.
std::unique_ptr<GeluOperations> make_fused_gelu(const RowKernels& kernels);

}  // namespace trainopt::fused_kernels
