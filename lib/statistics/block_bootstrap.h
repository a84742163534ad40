// Throughput of one run, whose step times are autocorrelated (clocks, caches and other programs change slowly).
#pragma once

#include "statistics/spread.h"

#include <cstdint>
#include <optional>
#include <span>

namespace trainopt {

/// A step, or several consecutive ones.
struct Piece {
  double samples = 0;  ///< > 0
  double seconds = 0;  ///< > 0
};

/// With fewer pieces, or fewer correlation times, a series is too short to estimate its own noise.
struct EnoughPieces {
  size_t pieces = 60;
  double correlation_times = 15;
};

/// The mean block length (≥ 1) with which the stationary bootstrap best estimates the variance of the mean of `series`:
/// D. N. Politis and H. White, "Automatic block-length selection for the dependent bootstrap", Econometric Reviews 23
/// (2004), with the correction of A. Patton, D. N. Politis and H. White, ibid. 28 (2009). About 1 for independent
/// values.
double mean_block_length(std::span<const double> series);

/// How many consecutive values of `series` carry as much information as one independent value: 1 + 2·Σ of the
/// autocorrelations, with the same lag window; at least 1. (1 + phi)/(1 − phi) for AR(1).
double correlation_time(std::span<const double> series);

/// The interval of Σ samples / Σ seconds in samples/s, at `level` in (0, 1): percentiles of the stationary bootstrap
/// (D. N. Politis and J. P. Romano, "The stationary bootstrap", JASA 89, 1994). Pieces are in the order in which they
/// ran, and of about equal length. Approximate: README.md has its measured coverage. nullopt: not `enough` pieces, or
/// too few correlation times as estimated from them.
std::optional<Interval> throughput_interval(std::span<const Piece> pieces, double level, uint64_t seed,
                                            EnoughPieces enough = {});

/// throughput_interval() for the ratio of B's throughput to A's, of two unpaired runs or parts of a run.
std::optional<Interval> throughput_ratio_interval(std::span<const Piece> a, std::span<const Piece> b, double level,
                                                  uint64_t seed, EnoughPieces enough = {});

/// Σ samples / Σ seconds.
double throughput(std::span<const Piece> pieces);

}  // namespace trainopt
