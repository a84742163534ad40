// The end of a language model in pieces of tokens, without the logits of all tokens.
#pragma once

#include "kernels/linear_cross_entropy/linear_cross_entropy.h"
#include "model/operations.h"

#include <memory>

namespace trainopt::fused_kernels {

/// `device`: the meta device, the CPU, or a GPU of this process.
const kernels::LinearCrossEntropyKernels& language_head_kernels(at::Device device);

/// Computes in autocast's type while it is enabled. `kernels` must outlive it.
std::unique_ptr<LanguageHeadOperations> make_fused_language_head(const kernels::LinearCrossEntropyKernels& kernels);

}  // namespace trainopt::fused_kernels
