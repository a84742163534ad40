// Whether single tensors of B differ from A's by more than rounding. What rounding does is seen in several twins of A,
// trainings from slightly perturbed weights with slightly perturbed gradients.
//
// B may round more or less than the twins do, so its own noise is measured first: the median over its tensors of how
// far each is turned, relative to the twins'. A tensor is then judged beside the others. Noise turns a vector by an
// angle, and it stretches it: by half of the angle's square if only one of the two vectors is noisy, not at all if both
// are, and by a random share that the twins show. What is left of a tensor's length after the common part is compared
// with that share. Its limit is so far out that the largest of all tensors of a correct B exceeds it in about one
// comparison of a hundred; the rates are measured by scripts/bench/bench_numbers.py.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trainopt {

// The tensors written by the first steps of two arms, in pairs.

/// A tensor of A and B's tensor of the same name, or two sets of tensors as one long vector each, by their inner
/// products.
struct TensorPair {
  std::string name;
  int64_t numbers = 0;  ///< elements in each of the two
  int64_t steps = 1;    ///< how many steps' tensors each of the two consists of
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
  /// Appends other tensors to the two.
  void append(const TensorPair& other);
};

/// All of `pairs` as one long vector.
TensorPair combined(const std::vector<TensorPair>& pairs);

/// A distance between B and A, and its tolerance.
struct Distance {
  double value = 0;
  double tolerance = 0;
  bool within_tolerance() const { return value <= tolerance; }  ///< false also for NaN
};

/// The tensors of one kind, each with a tolerance of its own.
struct TensorAgreement {
  int64_t tensors = 0, beyond = 0;  ///< how many were judged, and how many exceed their tolerance
  int64_t unchecked = 0;            ///< how many more are so noisy in the twins that no direction or length would tell
  std::string worst;                ///< the tensor with the largest distance relative to its tolerance; empty: none
  Distance direction, norm;         ///< the worst tensor's: 1 − cosine, |log of norm_ratio|
  double norm_ratio = 1;            ///< the worst tensor's: B's norm ÷ A's, without what noise does to all tensors

  bool within_tolerance() const { return beyond == 0; }
};

/// Twins' tensors of one kind, paired with A's.
using TwinPairs = std::vector<std::vector<TensorPair>>;

/// The distances of two sets of tensors as one vector each.
struct WholeAgreement {
  Distance direction, norm;  ///< 1 − cosine, |log of the norms' ratio|
};
/// Judges all tensors of a kind as one vector.
WholeAgreement judge_whole(const std::vector<TensorPair>& b, const TwinPairs& twins);

/// Judges every tensor of a kind. A tensor that no twin has counts as zero in all.
TensorAgreement judge_tensors(const std::vector<TensorPair>& b, const TwinPairs& twins);

}  // namespace trainopt
