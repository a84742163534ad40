// Throughput of one run, whose steps depend on their neighbours (clocks, caches, other programs come and go slowly).
#pragma once

#include "statistics/interval.h"

#include <cstdint>
#include <optional>
#include <span>

namespace trainopt {

/// A step, or several neighbouring ones.
struct Piece {
  double samples = 0;  ///< > 0
  double seconds = 0;  ///< > 0
};

/// With fewer pieces, or fewer correlation times, a series does not know its own noise.
struct EnoughPieces {
  size_t pieces = 60;
  double correlation_times = 15;
};

/// The mean block length (≥ 1) of the stationary bootstrap that gives the mean of `series` the best variance: D. N.
/// Politis and H. White, "Automatic block-length selection for the dependent bootstrap", Econometric Reviews 23 (2004),
/// with the correction of A. Patton, D. N. Politis and H. White, ibid. 28 (2009). About 1 for independent values.
double mean_block_length(std::span<const double> series);

/// How many neighbouring values of `series` say together as much as one that depends on no other: 1 + 2·Σ of the
/// autocorrelations, by the same window; at least 1. (1 + phi)/(1 − phi) for AR(1).
double correlation_time(std::span<const double> series);

/// The interval of Σ samples / Σ seconds in samples/s, at `level` in (0, 1): percentiles of the stationary bootstrap
/// (D. N. Politis and J. P. Romano, "The stationary bootstrap", JASA 89, 1994) over pieces in the order in which they
/// ran, of about equal length. Approximate: README.md has its measured coverage. nullopt: not `enough` of them, as far
/// as so many can tell.
std::optional<Interval> throughput_interval(std::span<const Piece> pieces, double level, uint64_t seed,
                                            EnoughPieces enough = {});

/// The same for B's throughput over A's, of two runs or parts of a run that were not paired.
std::optional<Interval> throughput_ratio_interval(std::span<const Piece> a, std::span<const Piece> b, double level,
                                                  uint64_t seed, EnoughPieces enough = {});

/// Σ samples / Σ seconds.
double throughput(std::span<const Piece> pieces);

}  // namespace trainopt
