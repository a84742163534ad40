#include "kernels/attention/cpu/vector_loops.h"
#include "kernels/cpu/avx2.h"

namespace trainopt::kernels {

template <class T>
const AttentionLoops<T>& attention_loops_avx2() {
  static constexpr AttentionLoops<T> kLoops = attention_loops<Avx2, T>();
  return kLoops;
}

template const AttentionLoops<float>& attention_loops_avx2();
template const AttentionLoops<c10::BFloat16>& attention_loops_avx2();
template const AttentionLoops<c10::Half>& attention_loops_avx2();

}  // namespace trainopt::kernels
