// Numerical agreement: whether two arms train the same thing.
#pragma once

#include "compare/arm.h"
#include "compare/numerics_yardstick.h"

#include <string>
#include <vector>

namespace trainopt {

/// A distance between B and A, and its tolerance.
struct Distance {
  double value = 0;
  double tolerance = 0;
  bool within_tolerance() const { return value <= tolerance; }  ///< false also for NaN
};

/// The tensors of one kind, each with a tolerance of its own.
struct TensorAgreement {
  int64_t tensors = 0, beyond = 0;  ///< how many were judged, and how many exceed their tolerance
  std::string worst;                ///< the tensor with the largest distance relative to its tolerance; empty: none
  Distance direction, norm;         ///< of the worst: 1 − cosine, |log of the norms' ratio|
  double norm_ratio = 1;            ///< of the worst: B's norm divided by A's

  bool within_tolerance() const { return beyond == 0; }
};

/// Both arms start from the same weights and see the same batches. Tolerances come from a third training, A's twin
/// (numerics_yardstick.h): a difference well beyond the twin's is neither rounding nor training noise. Tensors are
/// judged individually only with the perturbed twin: those of another seed differ too much. The factors and minimum
/// tolerances are in numerics.cpp and numerics_tolerance.cpp.
struct Numerics {
  std::string not_comparable;  ///< the reason; empty: comparable
  Yardstick yardstick = Yardstick::perturbed;
  int64_t steps = 0;                            ///< the number of first steps
  Distance loss;                                ///< mean |loss_B − loss_A| over them, relative to A's mean loss
  Distance worst_loss;                          ///< largest |loss_B − loss_A|, relative to A's mean loss
  Distance gradient_direction, gradient_norm;   ///< of the first step's gradients as one vector
  Distance update_direction, update_norm;       ///< of the parameters' change over the first kUpdateSteps as one vector
  TensorAgreement gradients, updates, buffers;  ///< the same and the buffers' change, tensor by tensor
  double gradient_norm_ratio = 1, update_norm_ratio = 1;  ///< B's divided by A's
  std::vector<double> losses_a, losses_b, losses_twin;

  bool agree() const;
  /// One sentence for each tolerance that B exceeds.
  std::vector<std::string> disagreements() const;
  /// Differences that this comparison would not detect, a few words each.
  std::vector<std::string> not_seen() const;
};

/// The results of an arm's first turn.
struct FirstSteps {
  const Turn& turn;
  std::filesystem::path folder;
};
/// Reads the files of the three arms' first turns and compares B with A; `twin` is A's twin of the kind `yardstick`.
/// Throws UserError if a file cannot be read.
Numerics compare_numbers(const FirstSteps& a, const FirstSteps& b, const FirstSteps& twin, Yardstick yardstick);

}  // namespace trainopt
