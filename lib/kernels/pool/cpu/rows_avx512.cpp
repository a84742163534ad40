#include "kernels/cpu/avx512.h"
#include "kernels/pool/cpu/pool_loops.h"

namespace trainopt::kernels {

template <class T>
const PoolRows<T>& pool_rows_avx512() {
  static constexpr PoolRows<T> kRows = pool_rows<Avx512, T>();
  return kRows;
}

template const PoolRows<float>& pool_rows_avx512();
template const PoolRows<c10::BFloat16>& pool_rows_avx512();
template const PoolRows<c10::Half>& pool_rows_avx512();

}  // namespace trainopt::kernels
