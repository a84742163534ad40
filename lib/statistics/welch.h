// The difference of two means from separate samples whose variances may differ.
#pragma once

#include "statistics/spread.h"

#include <cstdint>
#include <optional>
#include <span>

namespace trainopt {

/// The interval of mean(b) − mean(a) by Welch's t with the Welch–Satterthwaite degrees of freedom (B. L. Welch, "The
/// generalization of 'Student's' problem when several different population variances are involved", Biometrika 34,
/// 1947). `level` in (0, 1). Assumes that the values of each sample are independent and about normal: unlike the tests
/// in sign_flips.h, it trusts a model of the noise, because nothing was randomised. nullopt: a sample has fewer than
/// two values, or no value differs from its sample's mean.
std::optional<Interval> welch_interval(std::span<const double> a, std::span<const double> b, double level);

/// Half the width of the interval of the mean of `count` (≥ 2) values whose standard deviation is `sd`: Student's t.
double mean_half_width(double sd, int64_t count, double level);

/// About how many values each sample needs to find or rule out a difference of `effect` (> 0): with a chance of 90 %
/// the interval of equal means lies within ±effect on the side that matters. `sd_a`, `sd_b`: of one value.
int64_t welch_values_needed(double sd_a, double sd_b, double level, double effect);

// Student's t and the normal distribution.

/// P(T > t) of Student's t with `degrees` > 0 degrees of freedom, by the continued fraction of the incomplete beta
/// function (Abramowitz and Stegun 26.5.8, 26.7.1).
double student_tail(double t, double degrees);

/// The value that Student's t exceeds with probability `tail` in (0, 1/2].
double student_quantile(double tail, double degrees);
/// The value that the standard normal distribution exceeds with probability `tail` in (0, 1/2].
double normal_quantile(double tail);

}  // namespace trainopt
