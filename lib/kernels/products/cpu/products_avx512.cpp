#include "kernels/cpu/avx512.h"
#include "kernels/products/cpu/product_loops.h"

namespace trainopt::kernels {

const ProductKernels<float>& products_avx512() {
  static constexpr ProductKernels<float> kKernels = products_of<Avx512, 12, 8, 2, float>();
  return kKernels;
}

}  // namespace trainopt::kernels
