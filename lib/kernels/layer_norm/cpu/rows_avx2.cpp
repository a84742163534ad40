#include "kernels/cpu/avx2.h"
#include "kernels/layer_norm/cpu/layer_norm_loops.h"

namespace trainopt::kernels {

template <class T>
const LayerNormRows<T>& layer_norm_rows_avx2() {
  static constexpr LayerNormRows<T> kRows = layer_norm_rows<Avx2, T>();
  return kRows;
}

template const LayerNormRows<float>& layer_norm_rows_avx2();
template const LayerNormRows<c10::BFloat16>& layer_norm_rows_avx2();
template const LayerNormRows<c10::Half>& layer_norm_rows_avx2();

}  // namespace trainopt::kernels
