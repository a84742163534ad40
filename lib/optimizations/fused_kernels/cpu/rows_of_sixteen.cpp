#include "kernels/cpu/avx512.h"
#include "optimizations/fused_kernels/cpu/head_loops.h"
#include "optimizations/fused_kernels/cpu/pool_loops.h"

namespace trainopt::fused_kernels {

using kernels::Avx512;

template <class T>
const RowKernels<T>& rows_of_sixteen() {
  static constexpr RowKernels<T> kKernels = row_kernels<Avx512, T>();
  return kKernels;
}

template const RowKernels<float>& rows_of_sixteen();
template const RowKernels<c10::BFloat16>& rows_of_sixteen();
template const RowKernels<c10::Half>& rows_of_sixteen();

template <class T>
const HeadRowKernels<T>& head_rows_of_sixteen() {
  static constexpr HeadRowKernels<T> kKernels = head_row_kernels<Avx512, T>();
  return kKernels;
}

template const HeadRowKernels<float>& head_rows_of_sixteen();
template const HeadRowKernels<c10::BFloat16>& head_rows_of_sixteen();
template const HeadRowKernels<c10::Half>& head_rows_of_sixteen();

}  // namespace trainopt::fused_kernels
