// Attention on a CPU by our kernels, where nothing else was chosen.
#pragma once

#include "model/operations.h"

#include <memory>

namespace trainopt::fused_kernels {

/// Where optimizations.attention is `auto` and nothing is dropped; otherwise libtorch's. Also libtorch's for bfloat16
/// on CPUs with AMX, which its flash attention uses and our kernels do not, and for fewer samples × heads than threads,
/// because it divides a head further.
std::unique_ptr<AttentionOperations> make_fused_attention();

}  // namespace trainopt::fused_kernels
