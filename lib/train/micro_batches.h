// Smaller micro-batches than the loader delivers, where memory asks for them.
#pragma once

#include "data/batch.h"

#include <vector>

namespace trainopt {

/// The batch in `pieces` parts of nearly equal size (fewer if it has fewer samples), in order; views, nothing is copied. One piece: itself.
std::vector<Batch> cut(const Batch& batch, int64_t pieces);

}  // namespace trainopt
