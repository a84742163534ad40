#include "kernels/cpu/avx512.h"
#include "kernels/products/cpu/product_loops.h"

namespace trainopt::kernels {
namespace {

/// As TwoByTwo: one instruction multiplies two numbers and adds both products to a sum.
struct InPairs {
  using Lane = Avx512;
  using Number = c10::BFloat16;
  using Factor = __m512bh;
  using Line = __m512bh;
  static constexpr int kStep = 2;

  static Factor factor(const Number* a) {
    int32_t both;
    __builtin_memcpy(&both, a, sizeof(both));
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(both));
  }
  static Line line(const Number* b) { return interleaved(_mm512_loadu_si512(b)); }
  static Line last_line(const Number* b) {
    return interleaved(_mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b))));
  }
  static __m512 multiply_add(Factor a, Line b, __m512 sum) { return _mm512_dpbf16_ps(sum, a, b); }
  static const Number* stepped(const Number* panel, int64_t rows, Number* to) {
    for (int64_t row = 0; row < rows; row += 2, panel += 2 * kPanel, to += 2 * kPanel) {
      const Line both = row + 1 < rows ? line(panel) : last_line(panel);
      _mm512_store_si512(to, reinterpret_cast<__m512i>(both));
    }
    return to - (rows + 1) / 2 * 2 * kPanel;
  }

 private:
  /// Two rows of sixteen numbers, one from each in turn.
  static Line interleaved(__m512i rows) {
    alignas(64) static constexpr int16_t kOrder[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return reinterpret_cast<__m512bh>(_mm512_permutexvar_epi16(_mm512_load_si512(kOrder), rows));
  }
};

}  // namespace

const ProductKernels<c10::BFloat16>& bfloat16_products_avx512_bf16() {
  static constexpr ProductKernels<c10::BFloat16> kKernels = products_of<InPairs, 12, 8, 2>();
  return kKernels;
}

}  // namespace trainopt::kernels
