// How the images of a batch and the activations made from them are stored.
#pragma once

#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

namespace trainopt {

struct TensorFormat {
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;  ///< of batches, activations and filters
  /// What forward computes in: float32, or what autocast casts to. Images that are finished on the device are of this
  /// type; the host's are float32.
  at::ScalarType compute_type = at::kFloat;
};

}  // namespace trainopt
