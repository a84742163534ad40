// How widely numbers scatter.
#pragma once

#include <span>

namespace trainopt {

/// The standard deviation of a sample, with n − 1; 0 of fewer than two values.
double standard_deviation(std::span<const double> values);

}  // namespace trainopt
