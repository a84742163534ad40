#include "kernels/cpu/avx2.h"
#include "kernels/pool/cpu/pool_loops.h"

namespace trainopt::kernels {

template <class T>
const PoolRows<T>& pool_rows_avx2() {
  static constexpr PoolRows<T> kRows = pool_rows<Avx2, T>();
  return kRows;
}

template const PoolRows<float>& pool_rows_avx2();
template const PoolRows<c10::BFloat16>& pool_rows_avx2();
template const PoolRows<c10::Half>& pool_rows_avx2();

}  // namespace trainopt::kernels
