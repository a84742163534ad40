// How a batch's images and the activations computed from them are stored.
#pragma once

#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

namespace trainopt {

struct TensorFormat {
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;  ///< of batches, activations and filters
  /// The type that forward computes in: float32, or autocast's type. Images finished on the device have this type;
  /// those finished on the host are float32.
  at::ScalarType compute_type = at::kFloat;
};

}  // namespace trainopt
