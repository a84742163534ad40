#include "kernels/cpu/avx2.h"
#include "optimizations/fused_kernels/cpu/head_loops.h"
#include "optimizations/fused_kernels/cpu/pool_loops.h"

namespace trainopt::fused_kernels {

using kernels::Avx2;

template <class T>
const RowKernels<T>& rows_of_eight() {
  static constexpr RowKernels<T> kKernels = row_kernels<Avx2, T>();
  return kKernels;
}

template const RowKernels<float>& rows_of_eight();
template const RowKernels<c10::BFloat16>& rows_of_eight();
template const RowKernels<c10::Half>& rows_of_eight();

template <class T>
const HeadRowKernels<T>& head_rows_of_eight() {
  static constexpr HeadRowKernels<T> kKernels = head_row_kernels<Avx2, T>();
  return kKernels;
}

template const HeadRowKernels<float>& head_rows_of_eight();
template const HeadRowKernels<c10::BFloat16>& head_rows_of_eight();
template const HeadRowKernels<c10::Half>& head_rows_of_eight();

}  // namespace trainopt::fused_kernels
