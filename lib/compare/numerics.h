// The numbers beside the speed: whether two arms still train the same thing.
#pragma once

#include "compare/arm.h"
#include "compare/numerics_yardstick.h"

#include <string>
#include <vector>

namespace trainopt {

/// How far B is from A in one respect, and how far it may be.
struct Distance {
  double value = 0;
  double tolerance = 0;
  bool within() const { return value <= tolerance; }  ///< false also for NaN
};

/// The tensors of one kind, each held against a tolerance of its own.
struct TensorAgreement {
  int64_t tensors = 0, beyond = 0;  ///< how many were held against theirs, and how many are farther away
  std::string worst;                ///< the tensor that is farthest away for its tolerance; empty: there is none
  Distance direction, norm;         ///< of the worst: 1 − cosine, |log of the norms' ratio|
  double norm_ratio = 1;            ///< of the worst: B's over A's

  bool within() const { return beyond == 0; }
};

/// Both arms start from the same weights and see the same batches. Tolerances are learnt from a third training, A's
/// twin (numerics_yardstick.h): what differs by more than it does is not rounding, or not noise of training. Tensor by
/// tensor only beside the perturbed twin: another seed's differ too much. The factors and least tolerances are in
/// numerics.cpp and numerics_tolerance.cpp.
struct Numerics {
  std::string not_comparable;  ///< why, in words; empty: comparable
  Yardstick yardstick = Yardstick::perturbed;
  int64_t steps = 0;                            ///< how many first steps
  Distance loss;                                ///< mean |loss_B − loss_A| over them, over the mean loss of A
  Distance worst_loss;                          ///< the largest, over the same
  Distance gradient_direction, gradient_norm;   ///< of the first step's gradients as one vector
  Distance update_direction, update_norm;       ///< of the parameters' change over the first kUpdateSteps as one vector
  TensorAgreement gradients, updates, buffers;  ///< of the same, and of the buffers' change, tensor by tensor
  double gradient_norm_ratio = 1, update_norm_ratio = 1;  ///< B's over A's
  std::vector<double> losses_a, losses_b, losses_twin;

  bool agree() const;
  /// One sentence for each respect in which B is too far away.
  std::vector<std::string> disagreements() const;
  /// What B could do otherwise and agree all the same, a few words each.
  std::vector<std::string> not_seen() const;
};

/// What an arm's first turn leaves behind.
struct FirstSteps {
  const Turn& turn;
  std::filesystem::path folder;
};
/// Reads the files of the three arms' first turns; `twin` is A's twin of the kind `yardstick`. Throws UserError if one
/// cannot be read.
Numerics compare_numbers(const FirstSteps& a, const FirstSteps& b, const FirstSteps& twin, Yardstick yardstick);

}  // namespace trainopt
