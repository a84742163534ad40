// Host memory for batches and for numbers on their way back.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainopt {

/// An uninitialised CPU tensor, 64-byte aligned. `pinned`: page-locked, so that a GPU copies it by itself while the
/// host goes on (allocate once and reuse: locking pages takes milliseconds). Throws UserError if pinned is asked for
/// without a GPU.
at::Tensor host_tensor(at::IntArrayRef sizes, at::ScalarType dtype,
                       at::MemoryFormat memory_format = at::MemoryFormat::Contiguous, bool pinned = false);

}  // namespace trainopt
