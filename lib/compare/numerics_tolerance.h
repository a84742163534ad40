// Tolerances for tensors of B that differ from A's only by rounding.
#pragma once

#include "compare/numerics.h"
#include "compare/numerics_tensors.h"

namespace trainopt {

/// Distances in direction (1 − cosine) and length (|log of the norms' ratio|).
struct TensorDistance {
  Distance direction, norm;
  double excess() const;  ///< the larger of the two relative to its tolerance; above 1: beyond it
};

/// `twin`: the same tensor of A and its perturbed twin. `typical_chord`: the median chord() of tensors of this kind
/// between A and such a twin.
TensorDistance rounding_distance(const TensorPair& b, const TensorPair& twin, double typical_chord);

/// Judges all tensors of one kind, given those of A and B, and those of A and its perturbed twin.
TensorAgreement rounding_agreement(const std::vector<TensorPair>& b, const std::vector<TensorPair>& twin);

}  // namespace trainopt
