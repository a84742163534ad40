#include "kernels/cpu/avx2.h"
#include "kernels/gelu/cpu/gelu_loops.h"

namespace trainopt::kernels {

template <class T>
const GeluRows<T>& gelu_rows_avx2() {
  static constexpr GeluRows<T> kRows = gelu_rows<Avx2, T>();
  return kRows;
}

template const GeluRows<float>& gelu_rows_avx2();
template const GeluRows<c10::BFloat16>& gelu_rows_avx2();
template const GeluRows<c10::Half>& gelu_rows_avx2();

}  // namespace trainopt::kernels
