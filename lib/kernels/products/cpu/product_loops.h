// The matrix products, with sums in registers: several rows by one or two panels of sixteen columns at a time, so that
// each value that is read is used in several products.
#pragma once

#include "kernels/products/products.h"

namespace trainopt::kernels {
namespace {

/// Values that a product sums per pass: this many rows of the panels stay in the L1 cache.
constexpr int64_t kDepth = 256;

[[gnu::always_inline]] inline int64_t depth_from(int64_t first, int64_t all) {
  return all - first < kDepth ? all - first : kDepth;
}

/// Layout in panels of the left factor a: sums run over the columns of a row, or over the rows of a column.
enum class Along { columns, rows };

/// to[row][c] (+)= Σ a(row, i) · b[i][c] for i < depth, for kRows rows of a and kPanels panels of b and to. Along
/// columns, depth is a multiple of kPanel.
template <class Lane, Along kAlong, int kRows, int kPanels, class W>
void in_registers(const W* a, int64_t a_panel, const W* b, int64_t b_panel, int64_t depth, bool add, W* to,
                  int64_t to_panel) {
  constexpr int kIn = kPanel / Lane::kLanes, kVectors = kIn * kPanels, kRowStep = kAlong == Along::columns ? kPanel : 1;
  typename Lane::Numbers sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sums[row][v] = Lane::zero();
  const auto take = [&](const W* numbers) {
    typename Lane::Numbers line[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) line[v] = Lane::load(b + v / kIn * b_panel + v % kIn * Lane::kLanes);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const auto factor = Lane::of(numbers[row * kRowStep]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[row][v] = Lane::multiply_add(factor, line[v], sums[row][v]);
    }
    b += kPanel;
  };
  if constexpr (kAlong == Along::columns)
    for (const W* const end = a + depth / kPanel * a_panel; a != end; a += a_panel)
      for (int i = 0; i < kPanel; ++i) take(a + i);
  else
    for (const W* const end = a + depth * kPanel; a != end; a += kPanel) take(a);
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      W* const out = to + v / kIn * to_panel + row * kPanel + v % kIn * Lane::kLanes;
      Lane::store(out, add ? Lane::load(out) + sums[row][v] : sums[row][v]);
    }
}

/// For `rows` rows, kRows at a time.
template <class Lane, Along kAlong, int kRows, int kPanels, class W>
void over_rows(const W* a, int64_t a_panel, int64_t rows, const W* b, int64_t b_panel, int64_t depth, bool add, W* to,
               int64_t to_panel) {
  for (; rows >= kRows; rows -= kRows, a += kRows * (kAlong == Along::columns ? kPanel : 1), to += kRows * kPanel)
    in_registers<Lane, kAlong, kRows, kPanels>(a, a_panel, b, b_panel, depth, add, to, to_panel);
  if constexpr (kRows > 1)
    if (rows > 0) over_rows<Lane, kAlong, kRows - 1, kPanels>(a, a_panel, rows, b, b_panel, depth, add, to, to_panel);
}

/// For all columns of b and to, kPanels panels at a time; from row `first` of b and row `row` of to.
template <class Lane, Along kAlong, int kRows, int kPanels, class W>
void over_panels(const W* a, int64_t a_panel, int64_t rows, const Panels<W>& b, int64_t first, int64_t depth, bool add,
                 const Panels<W>& to, int64_t row, int64_t c = 0) {
  for (; c + kPanels * kPanel <= b.columns; c += kPanels * kPanel) {
    const W* const lines = b.panel(c) + first * kPanel;
    over_rows<Lane, kAlong, kRows, kPanels>(a, a_panel, rows, lines, b.rows * kPanel, depth, add,
                                            to.panel(c) + row * kPanel, to.rows * kPanel);
  }
  if constexpr (kPanels > 1)
    if (c < b.columns)
      over_panels<Lane, kAlong, kRows, kPanels - 1>(a, a_panel, rows, b, first, depth, add, to, row, c);
}

template <class Lane, int kRows, int kPanels, class W>
void product(const Panels<W>& a, const Panels<W>& b, int64_t begin, int64_t end, const Panels<W>& to) {
  for (int64_t first = 0; first < a.columns; first += kDepth) {
    const W* const numbers = a.panel(first) + begin * kPanel;
    over_panels<Lane, Along::columns, kRows, kPanels>(numbers, a.rows * kPanel, end - begin, b, first,
                                                      depth_from(first, a.columns), first > 0, to, begin);
  }
}

template <class Lane, int kRows, int kPanels, class W>
void outer_product(const Panels<W>& a, const Panels<W>& b, int64_t rows, int64_t begin, int64_t end, bool add,
                   const Panels<W>& to) {
  for (int64_t first = 0; first < rows; first += kDepth)
    for (int64_t k = begin; k < end; k += kPanel) {
      const W* const numbers = a.panel(k) + first * kPanel;
      over_panels<Lane, Along::rows, kRows, kPanels>(numbers, 0, kPanel, b, first, depth_from(first, rows),
                                                     add || first > 0, to, k);
    }
}

/// The numbers of rows of a product and of an outer product, and of panels, must leave registers for the values read.
template <class Lane, int kRows, int kOuterRows, int kPanels, class W>
constexpr ProductKernels<W> products_of() {
  return {.product = product<Lane, kRows, kPanels, W>, .outer_product = outer_product<Lane, kOuterRows, kPanels, W>};
}

}  // namespace
}  // namespace trainopt::kernels
