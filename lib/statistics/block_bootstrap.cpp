#include "statistics/block_bootstrap.h"

#include "base/error.h"
#include "base/philox.h"
#include "statistics/spread.h"
#include "statistics/welch.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace trainopt {
namespace {

constexpr size_t kMinPieces = 5;  // the correlation of fewer is undefined
constexpr int kResamples = 999;   // (999 + 1)·0.025 is an integer

/// Autocovariances R(0) … R(lags).
std::vector<double> autocovariances(std::span<const double> series, size_t lags) {
  const size_t n = series.size();
  double mean = 0;
  for (const double value : series) mean += value;
  mean /= static_cast<double>(n);
  std::vector<double> result(lags + 1);
  for (size_t lag = 0; lag <= lags; ++lag) {
    for (size_t i = lag; i < n; ++i) result[lag] += (series[i] - mean) * (series[i - lag] - mean);
    result[lag] /= static_cast<double>(n);
  }
  return result;
}

/// The smallest m that is followed by `run` insignificant correlations in a row; otherwise the last significant lag
/// (Politis and White, section 3.2).
size_t correlated_lags(const std::vector<double>& covariances, size_t run, double significant) {
  size_t quiet = 0, last = 0;
  for (size_t lag = 1; lag < covariances.size(); ++lag) {
    if (std::abs(covariances[lag]) < significant * covariances[0]) {
      if (++quiet == run) return lag - run;
    } else {
      quiet = 0;
      last = lag;
    }
  }
  return last;
}

struct Spectrum {
  double of_one = 0;               ///< the variance of one value
  double neighbours = 0;           ///< the lag-1 autocorrelation
  double variance = 0, slope = 0;  ///< g(0) and G of Politis and White, with their flat-top window
};

Spectrum spectrum(std::span<const double> series) {
  const auto n = static_cast<double>(series.size());
  TRAINOPT_CHECK(n > 1);
  const auto run = static_cast<size_t>(std::max(5.0, std::ceil(std::sqrt(std::log10(n)))));
  const size_t max_lags = std::min(series.size() - 1, static_cast<size_t>(std::ceil(std::sqrt(n))) + run);
  const std::vector<double> covariances = autocovariances(series, max_lags);
  if (covariances[0] <= 0) return {};
  const size_t window = std::min(2 * correlated_lags(covariances, run, 2 * std::sqrt(std::log10(n) / n)), max_lags);
  Spectrum result{
      .of_one = covariances[0], .neighbours = covariances[1] / covariances[0], .variance = covariances[0], .slope = 0};
  for (size_t lag = 1; lag <= window; ++lag) {
    const double weight = std::min(1.0, 2 * (1 - static_cast<double>(lag) / static_cast<double>(window)));
    result.slope += 2 * weight * static_cast<double>(lag) * covariances[lag];
    result.variance += 2 * weight * covariances[lag];
  }
  return result;
}

/// Factor by which to widen the bootstrap's spread, which is too small for short series. All three causes depend on
/// `block`, the block length as a share of the series. At the best length, cutting the series into blocks loses the
/// share sqrt(block) of the variance (the bias G / length of Politis and White, where length³ = (G/g(0))²·n).
/// Subtracting the mean of the same series loses the share `block`. And the variance is as uncertain as one estimated
/// from 1/block values, hence Student's t.
double widening(double block, double tail) {
  const double student = student_quantile(tail, std::max(1 / block, 3.0)) / normal_quantile(tail);
  return student / std::sqrt((1 - std::sqrt(block)) * (1 - block));
}

/// A conservative estimate of the lag-1 autocorrelation of a series of more than 4 values. A short series seems less
/// correlated than it is, and one that seems so by chance would get the narrowest interval. So the bias is corrected
/// (F. H. C. Marriott and J. A. Pope, "Bias in the estimation of autocorrelations", Biometrika 41, 1954), and one
/// standard deviation is added. Correlation times and block lengths follow from it as for AR(1).
double cautious_correlation(std::span<const double> series) {
  const auto n = static_cast<double>(series.size());
  const double unbiased = std::clamp((n * spectrum(series).neighbours + 1) / (n - 4), 0.0, 0.999);
  return std::min(unbiased + std::sqrt((1 - unbiased * unbiased) / n), 0.999);
}

/// Draws resampled sums in O(number of blocks) each, from prefix sums over two copies of the series end to end.
class StationaryBootstrap {
 public:
  StationaryBootstrap(std::span<const Piece> pieces, double level)
      : count_(pieces.size()), prefix_(2 * pieces.size() + 1) {
    TRAINOPT_CHECK(count_ >= kMinPieces && level > 0 && level < 1);
    for (size_t i = 0; i < 2 * count_; ++i) {
      const Piece& piece = pieces[i % count_];
      TRAINOPT_CHECK(piece.samples > 0 && piece.seconds > 0);
      prefix_[i + 1] = {prefix_[i].samples + piece.samples, prefix_[i].seconds + piece.seconds};
    }
    // A ratio of sums varies as the mean of its linearisation does.
    throughput_ = throughput(pieces);
    std::vector<double> linear;
    for (const Piece& piece : pieces) linear.push_back(piece.samples - throughput_ * piece.seconds);
    const auto n = static_cast<double>(count_);
    // Equal steps leave only rounding errors, whose correlation is meaningless.
    const bool equal = std::all_of(linear.begin(), linear.end(),
                                   [&](double value) { return std::abs(value) < 1e-9 * pieces[0].samples; });
    if (equal) std::fill(linear.begin(), linear.end(), 0.0);
    const double phi = equal ? 0 : cautious_correlation(linear), slope = 2 * phi / (1 - phi * phi);
    const double length = std::max(mean_block_length(linear), std::min(std::cbrt(slope * slope * n), n / 3));
    log_continue_ = length > 1 ? std::log1p(-1 / length) : -INFINITY;
    correlation_times_ = n / std::max(correlation_time(linear), (1 + phi) / (1 - phi));
    widening_ = widening(length / static_cast<double>(count_), (1 - level) / 2);
  }

  /// Whether the series is long enough to estimate its own noise.
  bool has(const EnoughPieces& enough) const {
    return count_ >= enough.pieces && correlation_times_ >= enough.correlation_times;
  }

  /// Throughput of a resampled series of the same number of pieces: blocks of geometric length that start anywhere.
  double draw(PhiloxStream& random) const {
    double samples = 0, seconds = 0;
    for (size_t filled = 0; filled < count_;) {
      const size_t start = random.next_below(count_);
      const double length = 1 + std::floor(std::log(1 - random.next_unit()) / log_continue_);
      const size_t end = start + static_cast<size_t>(std::min(length, static_cast<double>(count_ - filled)));
      samples += prefix_[end].samples - prefix_[start].samples;
      seconds += prefix_[end].seconds - prefix_[start].seconds;
      filled += end - start;
    }
    return throughput_ *
           std::pow(samples / seconds / throughput_, widening_);  // widened on the log scale: never below 0
  }

 private:
  size_t count_;
  std::vector<Piece> prefix_;
  double throughput_, log_continue_, widening_;
  double correlation_times_ = 0;
};

Interval percentiles(std::vector<double>& draws, double level) {
  const double outside = (1 - level) / 2 * static_cast<double>(draws.size() + 1) + 1e-9;
  return between_order_statistics(draws, std::max<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(outside), 1));
}

}  // namespace

double mean_block_length(std::span<const double> series) {
  const auto n = static_cast<double>(series.size());
  const Spectrum s = spectrum(series);
  if (s.variance <= 0) return 1;
  const double length = std::cbrt(s.slope * s.slope / (s.variance * s.variance) * n);
  return std::clamp(length, 1.0, std::ceil(std::min(3 * std::sqrt(n), n / 3)));
}

double correlation_time(std::span<const double> series) {
  const Spectrum s = spectrum(series);
  return s.of_one > 0 ? std::max(1.0, s.variance / s.of_one) : 1;
}

double throughput(std::span<const Piece> pieces) {
  Piece sum;
  for (const Piece& piece : pieces) sum = {sum.samples + piece.samples, sum.seconds + piece.seconds};
  return sum.samples / sum.seconds;
}

std::optional<Interval> throughput_interval(std::span<const Piece> pieces, double level, uint64_t seed,
                                            EnoughPieces enough) {
  if (pieces.size() < std::max(enough.pieces, kMinPieces)) return std::nullopt;
  const StationaryBootstrap bootstrap(pieces, level);
  if (!bootstrap.has(enough)) return std::nullopt;
  PhiloxStream random(mix_key(seed, "throughput"));
  std::vector<double> draws(kResamples);
  for (double& value : draws) value = bootstrap.draw(random);
  return percentiles(draws, level);
}

std::optional<Interval> throughput_ratio_interval(std::span<const Piece> a, std::span<const Piece> b, double level,
                                                  uint64_t seed, EnoughPieces enough) {
  if (std::min(a.size(), b.size()) < std::max(enough.pieces, kMinPieces)) return std::nullopt;
  const StationaryBootstrap bootstrap_a(a, level), bootstrap_b(b, level);
  if (!bootstrap_a.has(enough) || !bootstrap_b.has(enough)) return std::nullopt;
  PhiloxStream random(mix_key(seed, "throughput ratio"));
  std::vector<double> draws(kResamples);
  for (double& value : draws) value = bootstrap_b.draw(random) / bootstrap_a.draw(random);
  return percentiles(draws, level);
}

}  // namespace trainopt
