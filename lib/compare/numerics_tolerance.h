// How far from A a tensor of B may be that is right but rounded otherwise.
#pragma once

#include "compare/numerics.h"
#include "compare/numerics_tensors.h"

namespace trainopt {

/// Of direction (1 − cosine) and length (|log of the norms' ratio|).
struct TensorDistance {
  Distance direction, norm;
  double excess() const;  ///< the larger of the two for its tolerance; above 1: beyond it
};

/// `twin`: the same tensor of A and its perturbed twin. `usual_turn`: what such a twin turns tensors of this kind by.
TensorDistance rounding_distance(const TensorPair& b, const TensorPair& twin, double usual_turn);

/// All tensors of one kind: those of A and B, and those of A and its perturbed twin.
TensorAgreement rounding_agreement(const std::vector<TensorPair>& b, const std::vector<TensorPair>& twin);

}  // namespace trainopt
