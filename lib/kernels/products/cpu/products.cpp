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
const ProductKernels<c10::BFloat16>& product_kernels() {
  static const ProductKernels<c10::BFloat16>& kernels = has_avx512_bf16() ? bfloat16_products_avx512_bf16()
                                                        : has_avx512()    ? bfloat16_products_avx512()
                                                                          : bfloat16_products_avx2();
  return kernels;
}

template <>
const ProductKernels<double>& product_kernels() {
  static constexpr ProductKernels<double> kKernels = products_of<OneByOne<One>, 1, 1, 1>();
  return kKernels;
}

}  // namespace trainopt::kernels
