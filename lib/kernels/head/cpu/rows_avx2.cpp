#include "kernels/cpu/avx2.h"
#include "kernels/head/cpu/head_loops.h"

namespace trainopt::kernels {

template <class T>
const HeadRows<T>& head_rows_avx2() {
  static constexpr HeadRows<T> kRows = head_rows<Avx2, T>();
  return kRows;
}

template const HeadRows<float>& head_rows_avx2();
template const HeadRows<c10::BFloat16>& head_rows_avx2();
template const HeadRows<c10::Half>& head_rows_avx2();

}  // namespace trainopt::kernels
