// Matrix products of values in panels: sixteen columns stored together, row after row, so that products read memory
// sequentially. For kernels that bring values into this layout anyway, and whose products are too small for a library.
//
// Uses only raw memory and functions of its own: code compiled for wide vectors must never be used by the rest of the
// program.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>
#include <type_traits>

namespace trainopt::kernels {

inline constexpr int64_t kPanel = 16;  ///< the number of columns must be a multiple of this

/// rows × columns: at[(c / 16 * rows + row) * 16 + c % 16].
template <class W>
struct Panels {
  W* at;
  int64_t rows, columns;

  /// The panel of column c.
  [[gnu::always_inline]] W* panel(int64_t c) const { return at + c / kPanel * rows * kPanel; }
};

/// Type of the sums of products of W: float64 for float64, otherwise float32.
template <class W>
using Sum = std::conditional_t<std::is_same_v<W, double>, double, float>;

/// W: double, float, c10::BFloat16.
template <class W>
struct ProductKernels {
  /// to[t][k] = Σ a[t][c] · b[c][k] over the columns c of a, for rows t in [begin, end).
  void (*product)(const Panels<W>& a, const Panels<W>& b, int64_t begin, int64_t end, const Panels<Sum<W>>& to);
  /// to[k][c] = Σ a[t][k] · b[t][c] over the first `rows` rows t, for columns k of a in [begin, end), which are
  /// multiples of kPanel. `add`: adds to the previous contents.
  void (*outer_product)(const Panels<W>& a, const Panels<W>& b, int64_t rows, int64_t begin, int64_t end, bool add,
                        const Panels<Sum<W>>& to);
};

/// The kernels for the widest vectors of this CPU.
template <class W>
const ProductKernels<W>& product_kernels();
template <>
const ProductKernels<float>& product_kernels();
template <>
const ProductKernels<double>& product_kernels();
/// With AVX512_BF16, pairs of numbers are multiplied and added in one instruction, which rounds denormal numbers to
/// zero. Other CPUs convert them to float32.
template <>
const ProductKernels<c10::BFloat16>& product_kernels();

const ProductKernels<float>& products_avx2();
const ProductKernels<float>& products_avx512();
const ProductKernels<c10::BFloat16>& bfloat16_products_avx2();
const ProductKernels<c10::BFloat16>& bfloat16_products_avx512();
const ProductKernels<c10::BFloat16>& bfloat16_products_avx512_bf16();

}  // namespace trainopt::kernels
