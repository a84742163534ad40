// Student's t and the normal distribution.
#pragma once

namespace trainopt {

/// P(T > t) of Student's t with `degrees` > 0 degrees of freedom, by the continued fraction of the incomplete beta
/// function (Abramowitz and Stegun 26.5.8, 26.7.1).
double student_tail(double t, double degrees);

/// The value that Student's t exceeds with probability `tail` in (0, 1/2].
double student_quantile(double tail, double degrees);
/// The same for the normal distribution.
double normal_quantile(double tail);

}  // namespace trainopt
