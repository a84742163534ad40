#include "kernels/cpu/avx512.h"
#include "kernels/gelu/cpu/gelu_loops.h"

namespace trainopt::kernels {

template <class T>
const GeluRows<T>& gelu_rows_avx512() {
  static constexpr GeluRows<T> kRows = gelu_rows<Avx512, T>();
  return kRows;
}

template const GeluRows<float>& gelu_rows_avx512();
template const GeluRows<c10::BFloat16>& gelu_rows_avx512();
template const GeluRows<c10::Half>& gelu_rows_avx512();

}  // namespace trainopt::kernels
