#include "kernels/cpu/avx2.h"
#include "kernels/norm/cpu/norm_loops.h"

namespace trainopt::kernels {

template <class T>
const NormRows<T>& norm_rows_avx2() {
  static constexpr NormRows<T> kRows = norm_rows<Avx2, T>();
  return kRows;
}

template const NormRows<float>& norm_rows_avx2();
template const NormRows<c10::BFloat16>& norm_rows_avx2();
template const NormRows<c10::Half>& norm_rows_avx2();

}  // namespace trainopt::kernels
