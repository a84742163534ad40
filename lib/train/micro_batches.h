// Splits a loader's micro-batches into smaller ones after memory ran out.
#pragma once

#include "data/batch.h"

#include <vector>

namespace trainopt {

struct Plan;

/// Into how many parts this rank splits `batch`: `pieces`, or fewer if parts would have less than `min_items` samples.
/// If ranks exchange something in each part, all of them make as many as the one with the fewest samples, which in an
/// epoch's short last step are fewer than this rank's.
int64_t pieces_of(const Batch& batch, const Plan& plan, int64_t pieces, int64_t min_items);

/// Splits the batch in order into `pieces` parts whose sizes differ by at most one, or into fewer if parts would have
/// less than `min_items` samples. Parts are views; nothing is copied. A single piece is the batch itself.
std::vector<Batch> split_batch(const Batch& batch, int64_t pieces, int64_t min_items = 1);

}  // namespace trainopt
