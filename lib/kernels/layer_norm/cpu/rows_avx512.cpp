#include "kernels/cpu/avx512.h"
#include "kernels/layer_norm/cpu/layer_norm_loops.h"

namespace trainopt::kernels {

template <class T>
const LayerNormRows<T>& layer_norm_rows_avx512() {
  static constexpr LayerNormRows<T> kRows = layer_norm_rows<Avx512, T>();
  return kRows;
}

template const LayerNormRows<float>& layer_norm_rows_avx512();
template const LayerNormRows<c10::BFloat16>& layer_norm_rows_avx512();
template const LayerNormRows<c10::Half>& layer_norm_rows_avx512();

}  // namespace trainopt::kernels
