// One float64 value as a vector, for comparison with finite differences.
#pragma once

#include <cstdint>

namespace trainopt::kernels {
namespace {

struct One {
  using Number = double;
  using Numbers = double;
  static constexpr int64_t kLanes = 1;

  static double load(const double* from) { return *from; }
  static void store(double* to, double value) { *to = value; }
  static double zero() { return 0; }
  static double of(double number) { return number; }
  static double multiply_add(double a, double b, double c) { return a * b + c; }
};

}  // namespace
}  // namespace trainopt::kernels
