#include "kernels/cpu/by_type.h"
#include "kernels/winograd/cpu/product_loops.h"
#include "kernels/winograd/cpu/tile_loops.h"

namespace trainopt::kernels::winograd {
namespace {

/// One float64 value per vector, for comparison with finite differences.
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
  static const TileKernels<T>& kernels = has_avx512() ? tiles_avx512<T>() : tiles_avx2<T>();
  return kernels;
}

template <>
const TileKernels<double>& tile_kernels() {
  static constexpr TileKernels<double> kKernels = tiles_of<One, double>();
  return kKernels;
}

template <>
const ProductKernels<float>& product_kernels() {
  static const ProductKernels<float>& kernels = has_avx512() ? products_avx512() : products_avx2();
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

}  // namespace trainopt::kernels::winograd
