#include "kernels/cpu/avx512.h"
#include "kernels/products/cpu/product_loops.h"

namespace trainopt::kernels {

const ProductKernels<float>& products_avx512() {
  static constexpr ProductKernels<float> kKernels = products_of<OneByOne<Avx512>, 12, 8, 2>();
  return kKernels;
}

const ProductKernels<c10::BFloat16>& bfloat16_products_avx512() {
  static constexpr ProductKernels<c10::BFloat16> kKernels = products_of<TwoByTwo<Avx512>, 8, 8, 2>();
  return kKernels;
}

}  // namespace trainopt::kernels
