// Splits a loader's micro-batches into smaller ones after memory ran out.
#pragma once

#include "data/batch.h"

#include <vector>

namespace trainopt {

/// Splits the batch in order into `pieces` parts whose sizes differ by at most one, or into fewer if parts would have
/// less than `min_items` samples. Parts are views; nothing is copied. A single piece is the batch itself.
std::vector<Batch> split_batch(const Batch& batch, int64_t pieces, int64_t min_items = 1);

}  // namespace trainopt
