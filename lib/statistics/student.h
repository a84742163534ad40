// Student's t, for what is approximate anyway.
#pragma once

namespace trainopt {

/// The value that Student's t with `degrees` degrees of freedom (≥ 2; infinite: the normal distribution) exceeds with
/// probability `tail` in (0, 1/2]: Cornish and Fisher's expansion (Abramowitz and Stegun 26.7.5), within 4 % from 4
/// degrees and down to a tail of 0.001.
double student_quantile(double tail, double degrees);

}  // namespace trainopt
