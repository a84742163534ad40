#include "kernels/cpu/avx2.h"
#include "kernels/products/cpu/product_loops.h"

namespace trainopt::kernels {

const ProductKernels<float>& products_avx2() {
  static constexpr ProductKernels<float> kKernels = products_of<Avx2, 6, 6, 1, float>();
  return kKernels;
}

}  // namespace trainopt::kernels
