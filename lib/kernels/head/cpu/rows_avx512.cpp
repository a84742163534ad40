#include "kernels/cpu/avx512.h"
#include "kernels/head/cpu/head_loops.h"

namespace trainopt::kernels {

template <class T>
const HeadRows<T>& head_rows_avx512() {
  static constexpr HeadRows<T> kRows = head_rows<Avx512, T>();
  return kRows;
}

template const HeadRows<float>& head_rows_avx512();
template const HeadRows<c10::BFloat16>& head_rows_avx512();
template const HeadRows<c10::Half>& head_rows_avx512();

}  // namespace trainopt::kernels
