#include "kernels/cpu/by_type.h"
#include "optimizations/winograd/cpu/product_loops.h"
#include "optimizations/winograd/cpu/tile_loops.h"

namespace trainopt::winograd {
namespace {

using kernels::has_avx512;

/// One float64: what finite differences can be held against.
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

template <class T>
const TileKernels<T>& tile_kernels() {
  static const TileKernels<T>& kernels = has_avx512() ? tiles_of_sixteen<T>() : tiles_of_eight<T>();
  return kernels;
}

template <>
const TileKernels<double>& tile_kernels() {
  static constexpr TileKernels<double> kKernels = tiles_of<One, double>();
  return kKernels;
}

template <>
const ProductKernels<float>& product_kernels() {
  static const ProductKernels<float>& kernels = has_avx512() ? products_of_sixteen() : products_of_eight();
  return kernels;
}

template <>
const ProductKernels<double>& product_kernels() {
  static constexpr ProductKernels<double> kKernels = products_of<One, 1, 1, 1, double>();
  return kKernels;
}

template const TileKernels<float>& tile_kernels();
template const TileKernels<c10::BFloat16>& tile_kernels();
template const TileKernels<c10::Half>& tile_kernels();

}  // namespace trainopt::winograd
