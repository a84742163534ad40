// Sequential test of a ratio of times from paired measurements, without a model of the noise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trainopt {

/// The times that two arms took for the same work. Both > 0, in any unit that all pairs share.
struct PairedTimes {
  double a = 0, b = 0;
};

/// The highest confidence level for which SignFlipTest has enough patterns: at least one of 2¹⁶ at either end.
inline constexpr double kHighestLevel = 0.99995;

/// The fewest pairs with which a test by their signs, SignFlipTest or the signed-rank test, can reach `level` in (0,
/// 1).
int64_t pairs_for(double level);

/// The ratio of total times, Σa / Σb: the ratio of B's throughput to A's.
double total_ratio(std::span<const PairedTimes> pairs);

/// A group-sequential randomisation test of the ratio of A's times to B's.
///
/// If ρ is the true ratio and a coin toss decided which arm went first, then a − ρ·b is equally likely to have either
/// sign, all else equal, whatever the machine did meanwhile (drift, dependence, outliers, jumping clocks). So the
/// observed sum of a − ρ·b is one of the sums under all patterns of sign flips, each equally likely. The patterns used
/// are a group of 2^bits_, which keeps the test exact (J. A. Hartigan, "Using subsample values as typical values", JASA
/// 64, 1969). Each look rejects those of the remaining patterns that have the largest sums, up to the share of the
/// error that may be spent by then (alpha spending: K. K. G. Lan and D. L. DeMets, "Discrete sequential boundaries for
/// clinical trials", Biometrika 70, 1983). A ratio is rejected if the observed pattern, no flip at all, is among them.
/// Over all looks together, a true ratio is rejected with at most the probability spent.
///
/// Approximate if the noise of the arms has different distributions: README.md has measured rates.
class SignFlipTest {
 public:
  /// `seed` chooses the group. `error` in (0, 1): the most that will be spent; determines the number of patterns.
  SignFlipTest(double error, uint64_t seed);

  /// Looks at all pairs so far; `spent` is the error that may have been spent by then, no less than before. `pairs`
  /// starts with the pairs of the previous look. `allowance`: time added to the total of the arm that seems faster,
  /// spread over all its pairs in proportion, so that it must be faster by that much more. `charge`: a further
  /// allowance, which can be omitted at the last look.
  void look(std::span<const PairedTimes> pairs, double spent, PairedTimes allowance = {}, PairedTimes charge = {});

  /// Whether any look shows that the true ratio is greater than `ratio`, or less. `charge_last`: whether the charge of
  /// the last look applies; the charges of earlier looks always do.
  bool rejects_as_too_low(double ratio, bool charge_last = true) const { return rejects(ratio, 1, charge_last); }
  bool rejects_as_too_high(double ratio, bool charge_last = true) const { return rejects(ratio, -1, charge_last); }
  int64_t looks() const { return static_cast<int64_t>(looks_.size()); }

 private:
  /// Σ ±a and Σ ±b of each pattern.
  struct Look {
    std::vector<double> a, b;
    PairedTimes allowance, charge;
    int64_t allowed = 0;  ///< patterns that may be rejected on each side so far
  };

  /// The state of a ratio's test on its way through the looks, with all charges applied.
  struct Walk {
    double ratio = 1, sign = 1;
    size_t looks = 0;  ///< looks done
    bool rejected = false;
    std::vector<uint32_t> remaining;  ///< patterns not rejected before the last of these looks
  };

  bool rejects(double ratio, double sign, bool charge_last) const;
  bool result(Walk& walk, bool charge_last) const;
  bool removes_observed(const Look& look, const Walk& walk, bool charged) const;
  void remove_largest(const Look& look, Walk& walk) const;
  int64_t removed(const Walk& walk) const { return static_cast<int64_t>(sums_a_.size() - walk.remaining.size()); }

  size_t bits_;
  uint64_t key_;
  size_t taken_ = 0;                     ///< pairs included in the sums
  std::vector<double> sums_a_, sums_b_;  ///< sums over the pairs of each column
  std::vector<Look> looks_;
  mutable std::vector<Walk> walks_;
};

// A group of sign patterns, small enough to enumerate and large enough to test with.

/// The column of an element, 1 … 2^bits − 1: pattern `word` flips the element if `word` and the column share an odd
/// number of set bits. The exclusive or of two words is then the product of their patterns, so the 2^bits patterns are
/// a group. Each of the first `bits` elements has a bit of its own, so that up to `bits` elements have all patterns;
/// `key` chooses the columns of the others.
size_t pattern_column(size_t element, size_t bits, uint64_t key);

/// values[w] becomes the sum over c of values[c]·(−1)^(number of set bits that w and c share): the fast Walsh–Hadamard
/// transform in place; the number of values is a power of two. Turns sums by column into the signed sum of every
/// pattern.
void walsh_hadamard(std::vector<double>& values);

}  // namespace trainopt
