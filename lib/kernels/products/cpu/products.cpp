#include "kernels/cpu/by_type.h"
#include "kernels/cpu/one.h"
#include "kernels/products/cpu/product_loops.h"

namespace trainopt::kernels {

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

}  // namespace trainopt::kernels
