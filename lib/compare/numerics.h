// The numbers beside the speed: whether two arms still train the same thing.
#pragma once

#include "base/json.h"
#include "compare/arm.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// How far B is from A, and how far A is from itself with other batches.
struct Distance {
  double value = 0;
  double tolerance = 0;
  bool within() const { return value <= tolerance; }  ///< false also for NaN
};

/// Both arms start from the same weights and see the same batches. Tolerances are learnt from a third training: A's
/// recipe and initial weights with other batches. What differs by more than that is not noise of training. The factors
/// and least tolerances are in numerics.cpp.
struct Numerics {
  std::string not_comparable;   ///< why, in words; empty: comparable
  Distance loss;                ///< mean |loss_B − loss_A| over the first steps, over the mean loss of A
  Distance gradient_direction;  ///< 1 − cosine of the first step's gradients
  Distance gradient_norm;       ///< |log of the norms' ratio|, first step
  Distance update_norm;         ///< the same of the first steps' whole update
  double gradient_norm_ratio = 1, update_norm_ratio = 1;  ///< B's over A's
  int64_t steps = 0;                                      ///< how many first steps
  std::vector<double> losses_a, losses_b, losses_reseeded;

  bool agree() const {
    return loss.within() && gradient_direction.within() && gradient_norm.within() && update_norm.within();
  }
  /// One sentence for each distance beyond its tolerance.
  std::vector<std::string> disagreements() const;
};
Json to_json(const Numerics& numerics);

/// What an arm's first turn leaves behind.
struct FirstSteps {
  const Turn& turn;
  std::filesystem::path folder;
};
/// Reads the files of the three arms' first turns. Throws UserError if one cannot be read.
Numerics compare_numbers(const FirstSteps& a, const FirstSteps& b, const FirstSteps& reseeded);

}  // namespace trainopt
