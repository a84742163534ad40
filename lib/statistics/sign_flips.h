// What paired measurements say about a ratio of times, without a model of the noise, however often one looks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trainopt {

/// The times that two arms took for the same work, side by side. Both > 0, in any unit that all pairs share.
struct PairedTimes {
  double a = 0, b = 0;
};

/// The ratio of total times, Σa / Σb: B's throughput over A's.
double total_ratio(std::span<const PairedTimes> pairs);

/// A group-sequential randomization test of the ratio of times, A's over B's.
///
/// If ρ is the true ratio and a coin decided which arm went first, then a − ρ·b is as likely to have the other sign,
/// all else equal, whatever the machine did meanwhile (drift, dependence, outliers, clocks that jump). So the observed
/// sum of a − ρ·b is one of the sums under all patterns of signs, each as likely as the others. Patterns are those of a
/// group of 2^bits(), which keeps the test exact (J. A. Hartigan, "Using subsample values as typical values", JASA 64,
/// 1969). At each look the patterns with the largest sums that have not been rejected before are rejected, up to the
/// share of the error that may be spent by then (K. K. G. Lan and D. L. DeMets, "Discrete sequential boundaries for
/// clinical trials", Biometrika 70, 1983); `ratio` is rejected if the observed pattern, no flip at all, is among them.
/// Over all looks a true ratio is rejected with at most the probability that was spent.
///
/// Approximate where the noise of the arms differs in shape: README.md has measured rates.
class SignFlipTest {
 public:
  /// `seed` chooses the group. `error` in (0, 1): what will be spent at most; it decides how many patterns there are.
  SignFlipTest(double error, uint64_t seed);

  /// Looks at all pairs so far; `spent` is the error that may have been spent by then, no less than before. `pairs`
  /// begins with the pairs of the look before. `allowance`: time added to the total of the arm that seems faster, over
  /// all its pairs in proportion, so that it must be faster by so much more. `charge`: more of it, which the last look
  /// may be asked to leave out.
  void look(std::span<const PairedTimes> pairs, double spent, PairedTimes allowance = {}, PairedTimes charge = {});

  /// Whether some look says that the true ratio is greater than `ratio`, or less. `charge_last`: whether the last
  /// look's charge counts; the charges of those before it always do.
  bool rejects_as_too_low(double ratio, bool charge_last = true) const { return rejects(ratio, 1, charge_last); }
  bool rejects_as_too_high(double ratio, bool charge_last = true) const { return rejects(ratio, -1, charge_last); }
  int64_t looks() const { return static_cast<int64_t>(looks_.size()); }

 private:
  /// Σ ±a and Σ ±b of each pattern.
  struct Look {
    std::vector<double> a, b;
    PairedTimes allowance, charge;
    int64_t allowed = 0;  ///< patterns that may be rejected on each side by now
  };

  /// A ratio on its way through the looks, all of them charged.
  struct Walk {
    double ratio = 1, sign = 1;
    size_t looks = 0;  ///< that it has passed
    bool rejected = false;
    std::vector<uint32_t> left;  ///< patterns that were not rejected before the last of them
  };

  bool rejects(double ratio, double sign, bool charge_last) const;
  bool result(Walk& walk, bool charge_last) const;
  bool observed_goes(const Look& look, const Walk& walk, bool charged) const;
  void remove_largest(const Look& look, Walk& walk) const;
  int64_t gone(const Walk& walk) const { return static_cast<int64_t>(sums_a_.size() - walk.left.size()); }

  size_t bits_;
  uint64_t key_;
  size_t taken_ = 0;                     ///< pairs that are in the sums
  std::vector<double> sums_a_, sums_b_;  ///< of the pairs of each column
  std::vector<Look> looks_;
  mutable std::vector<Walk> walks_;
};

}  // namespace trainopt
