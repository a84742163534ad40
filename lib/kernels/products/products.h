// Matrix products of values in panels: sixteen columns stored together, row after row, so that products read memory
// sequentially. For kernels that bring values into this layout anyway, and whose products are too small for a library.
//
// Uses only raw memory and functions of its own: code compiled for wide vectors must never be used by the rest of the
// program.
#pragma once

#include <cstdint>

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

/// W: double, float.
template <class W>
struct ProductKernels {
  /// to[t][k] = Σ a[t][c] · b[c][k] over the columns c of a, for rows t in [begin, end).
  void (*product)(const Panels<W>& a, const Panels<W>& b, int64_t begin, int64_t end, const Panels<W>& to);
  /// to[k][c] = Σ a[t][k] · b[t][c] over the first `rows` rows t, for columns k of a in [begin, end), which are
  /// multiples of kPanel. `add`: adds to the previous contents.
  void (*outer_product)(const Panels<W>& a, const Panels<W>& b, int64_t rows, int64_t begin, int64_t end, bool add,
                        const Panels<W>& to);
};

/// For the widest vectors of this CPU.
template <class W>
const ProductKernels<W>& product_kernels();
template <>
const ProductKernels<float>& product_kernels();
template <>
const ProductKernels<double>& product_kernels();

const ProductKernels<float>& products_avx2();
const ProductKernels<float>& products_avx512();

}  // namespace trainopt::kernels
