// Host memory for batches and for results copied back from a device.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainopt {

/// An uninitialised CPU tensor, 64-byte aligned. `pinned`: page-locked, so that a GPU can copy it while the host
/// continues (allocate once and reuse, because locking pages takes milliseconds). Throws UserError if `pinned` is set
/// and there is no GPU.
at::Tensor host_tensor(at::IntArrayRef sizes, at::ScalarType dtype,
                       at::MemoryFormat memory_format = at::MemoryFormat::Contiguous, bool pinned = false);

}  // namespace trainopt
