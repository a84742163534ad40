// Numerical agreement: whether two arms train the same thing.
#pragma once

#include "compare/arms/arm.h"
#include "config/describe.h"
#include "recipe/recipe.h"

#include <string>
#include <vector>

namespace trainopt {

// The tensors written by the first steps of two arms, in pairs.

/// A tensor of A and B's tensor of the same name, or two sets of tensors as one long vector each, by their inner
/// products.
struct TensorPair {
  std::string name;
  int64_t numbers = 0;  ///< elements in each of the two
  double aa = 0, bb = 0, ab = 0;

  /// 1 if both are zero, 0 if one is.
  double cosine() const;
  /// The distance between the two after normalising each to length 1. If it is small, about the relative size of the
  /// difference between them. From 0 to 2.
  double chord() const;
  double norm_ratio() const;  ///< B's divided by A's; 1 if both are zero
  /// |log norm_ratio()|; kZeroNormChange if one of them is zero: finite, so that JSON can hold it.
  double norm_change() const;
  static constexpr double kZeroNormChange = 1e3;

  bool is_finite() const;
};

/// All of `pairs` as one long vector.
TensorPair combined(const std::vector<TensorPair>& pairs);

// The yardstick for numerical differences: a third training, A's twin, shows how much a correct B may differ from A.

/// The kind of twin whose distances from A are the yardstick for B's.
enum class Yardstick {
  perturbed,  ///< same batches, slightly perturbed weights: for a B that differs from A only by rounding
  reseeded    ///< other batches, same weights: for a B with other random draws or other micro-batches than A
};
template <>
struct Choices<Yardstick> {
  static constexpr std::array all = {Choice<Yardstick>{"perturbed", Yardstick::perturbed},
                                     Choice<Yardstick>{"reseeded", Yardstick::reseeded}};
};

/// `reseeded` if the recipes differ in anything that determines a step's samples, its random draws or its division into
/// micro-batches, or in a switch that declares other_draws (optimizations/info.h).
Yardstick yardstick(const Recipe& a, const Recipe& b);

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
  Distance direction, norm;         ///< the worst tensor's: 1 − cosine, |log of the norms' ratio|
  double norm_ratio = 1;            ///< the worst tensor's: B's norm divided by A's

  bool within_tolerance() const { return beyond == 0; }
};

/// Both arms start from the same weights and see the same batches. Tolerances come from a third training, A's twin:
/// a difference well beyond the twin's is neither rounding nor training noise. Tensors are judged individually only
/// with the perturbed twin: those of another seed differ too much. The factors and minimum tolerances are in
/// numerics.cpp.
struct Numerics {
  std::string not_comparable;  ///< the reason; empty: comparable
  Yardstick yardstick = Yardstick::perturbed;
  int64_t steps = 0;                            ///< the number of first steps
  Distance loss;                                ///< mean |loss_B − loss_A| over them, relative to A's mean loss
  Distance worst_loss;                          ///< largest |loss_B − loss_A|, relative to A's mean loss
  Distance gradient_direction, gradient_norm;   ///< the first step's gradients as one vector
  Distance update_direction, update_norm;       ///< the parameters' change over the first kUpdateSteps as one vector
  TensorAgreement gradients, updates, buffers;  ///< gradients, parameters' and buffers' changes, tensor by tensor
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
