#include "kernels/attention/cpu/vector_loops.h"
#include "kernels/cpu/avx512.h"

namespace trainopt::kernels {

template <class T>
const AttentionLoops<T>& attention_loops_avx512() {
  static constexpr AttentionLoops<T> kLoops = attention_loops<Avx512, T>();
  return kLoops;
}

template const AttentionLoops<float>& attention_loops_avx512();
template const AttentionLoops<c10::BFloat16>& attention_loops_avx512();
template const AttentionLoops<c10::Half>& attention_loops_avx512();

}  // namespace trainopt::kernels
