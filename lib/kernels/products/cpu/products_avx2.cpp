#include "kernels/cpu/avx2.h"
#include "kernels/products/cpu/product_loops.h"

namespace trainopt::kernels {

const ProductKernels<float>& products_avx2() {
  static constexpr ProductKernels<float> kKernels = products_of<OneByOne<Avx2>, 6, 6, 1>();
  return kKernels;
}

const ProductKernels<c10::BFloat16>& bfloat16_products_avx2() {
  static constexpr ProductKernels<c10::BFloat16> kKernels = products_of<TwoByTwo<Avx2>, 4, 4, 1>();
  return kKernels;
}

}  // namespace trainopt::kernels
