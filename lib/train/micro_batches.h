// Smaller micro-batches than the loader delivers, where memory asks for them.
#pragma once

#include "data/batch.h"

#include <vector>

namespace trainopt {

/// The batch in `pieces` parts whose sizes differ by one at most, in order; fewer parts if they would have less than
/// `fewest` samples. Views, nothing is copied. One piece: itself.
std::vector<Batch> cut(const Batch& batch, int64_t pieces, int64_t fewest = 1);

}  // namespace trainopt
