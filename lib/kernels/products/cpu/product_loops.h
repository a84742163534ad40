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

/// How a sum advances: one row of b at a time. `Factor` is one number of a for all lanes, `Line` the numbers of a row
/// of b.
template <class L>
struct OneByOne {
  using Lane = L;
  using Number = typename Lane::Number;
  using Factor = typename Lane::Numbers;
  using Line = typename Lane::Numbers;
  static constexpr int kStep = 1;

  static Factor factor(const Number* a) { return Lane::of(*a); }
  static Line line(const Number* b) { return Lane::load(b); }
  static auto multiply_add(Factor a, Line b, typename Lane::Numbers sum) { return Lane::multiply_add(a, b, sum); }
  /// Rows of a's panel, where factor() reads them.
  static const Number* stepped(const Number* panel, int64_t, Number*) { return panel; }
};

/// Two rows of b at a time, of 16-bit numbers. The two numbers of a that belong to them are adjacent in memory.
template <class L>
struct TwoByTwo {
  using Lane = L;
  using Number = c10::BFloat16;
  struct Pair {
    typename Lane::Numbers first, second;
  };
  using Factor = Pair;
  using Line = Pair;
  static constexpr int kStep = 2;

  static Factor factor(const Number* a) { return {Lane::of(widened(a)), Lane::of(widened(a + 1))}; }
  static Line line(const Number* b) { return {Lane::load(b), Lane::load(b + kPanel)}; }
  static Line last_line(const Number* b) { return {Lane::load(b), Lane::zero()}; }
  static auto multiply_add(Factor a, Line b, typename Lane::Numbers sum) {
    return Lane::multiply_add(a.first, b.first, Lane::multiply_add(a.second, b.second, sum));
  }
  /// Interleaves the rows two by two. The last of an odd number is followed by zeros.
  static const Number* stepped(const Number* panel, int64_t rows, Number* to) {
    for (int64_t row = 0; row < rows + rows % 2; ++row)
      for (int64_t c = 0; c < kPanel; ++c)
        to[(row / 2 * kPanel + c) * 2 + row % 2].x = row < rows ? panel[row * kPanel + c].x : uint16_t{0};
    return to;
  }

 private:
  /// As the type's own conversion, which is compiled for other CPUs too and must not be compiled here.
  [[gnu::always_inline]] static float widened(const Number* a) {
    const uint32_t bits = uint32_t{a->x} << 16;
    float number;
    __builtin_memcpy(&number, &bits, sizeof(number));
    return number;
  }
};

/// to[row][c] (+)= Σ a(row, i) · b[i][c] for i < depth, for kRows rows of a and kPanels panels of b and to. Along
/// columns, depth is a multiple of kPanel; along rows, a comes from stepped().
template <class By, Along kAlong, int kRows, int kPanels, class W>
void in_registers(const W* a, int64_t a_panel, const W* b, int64_t b_panel, int64_t depth, bool add, Sum<W>* to,
                  int64_t to_panel) {
  using Lane = typename By::Lane;
  constexpr int kIn = kPanel / Lane::kLanes, kVectors = kIn * kPanels, kStep = By::kStep,
                kRowStep = kAlong == Along::columns ? kPanel : kStep;
  typename Lane::Numbers sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sums[row][v] = Lane::zero();
  const auto take = [&](const W* numbers, const auto& line_of) {
    typename By::Line line[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) line[v] = line_of(b + v / kIn * b_panel + v % kIn * Lane::kLanes);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const auto factor = By::factor(numbers + row * kRowStep);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[row][v] = By::multiply_add(factor, line[v], sums[row][v]);
    }
    b += kStep * kPanel;
  };
  const auto line = [](const W* numbers) { return By::line(numbers); };
  if constexpr (kAlong == Along::columns) {
    for (const W* const end = a + depth / kPanel * a_panel; a != end; a += a_panel)
      for (int i = 0; i < kPanel; i += kStep) take(a + i, line);
  } else {
    for (const W* const end = a + depth / kStep * kStep * kPanel; a != end; a += kStep * kPanel) take(a, line);
    if constexpr (kStep > 1)
      if (depth % kStep != 0) take(a, [](const W* numbers) { return By::last_line(numbers); });
  }
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      Sum<W>* const out = to + v / kIn * to_panel + row * kPanel + v % kIn * Lane::kLanes;
      Lane::store(out, add ? Lane::load(out) + sums[row][v] : sums[row][v]);
    }
}

/// Multiplies `rows` rows, kRows at a time.
template <class By, Along kAlong, int kRows, int kPanels, class W>
void over_rows(const W* a, int64_t a_panel, int64_t rows, const W* b, int64_t b_panel, int64_t depth, bool add,
               Sum<W>* to, int64_t to_panel) {
  constexpr int kRowStep = kAlong == Along::columns ? kPanel : By::kStep;
  for (; rows >= kRows; rows -= kRows, a += kRows * kRowStep, to += kRows * kPanel)
    in_registers<By, kAlong, kRows, kPanels>(a, a_panel, b, b_panel, depth, add, to, to_panel);
  if constexpr (kRows > 1)
    if (rows > 0) over_rows<By, kAlong, kRows - 1, kPanels>(a, a_panel, rows, b, b_panel, depth, add, to, to_panel);
}

/// For all columns of b and to, kPanels panels at a time; from row `first` of b and row `row` of to.
template <class By, Along kAlong, int kRows, int kPanels, class W>
void over_panels(const W* a, int64_t a_panel, int64_t rows, const Panels<W>& b, int64_t first, int64_t depth, bool add,
                 const Panels<Sum<W>>& to, int64_t row, int64_t c = 0) {
  for (; c + kPanels * kPanel <= b.columns; c += kPanels * kPanel) {
    const W* const lines = b.panel(c) + first * kPanel;
    over_rows<By, kAlong, kRows, kPanels>(a, a_panel, rows, lines, b.rows * kPanel, depth, add,
                                          to.panel(c) + row * kPanel, to.rows * kPanel);
  }
  if constexpr (kPanels > 1)
    if (c < b.columns) over_panels<By, kAlong, kRows, kPanels - 1>(a, a_panel, rows, b, first, depth, add, to, row, c);
}

template <class By, int kRows, int kPanels, class W>
void product(const Panels<W>& a, const Panels<W>& b, int64_t begin, int64_t end, const Panels<Sum<W>>& to) {
  for (int64_t first = 0; first < a.columns; first += kDepth) {
    const W* const numbers = a.panel(first) + begin * kPanel;
    over_panels<By, Along::columns, kRows, kPanels>(numbers, a.rows * kPanel, end - begin, b, first,
                                                    depth_from(first, a.columns), first > 0, to, begin);
  }
}

template <class By, int kRows, int kPanels, class W>
void outer_product(const Panels<W>& a, const Panels<W>& b, int64_t rows, int64_t begin, int64_t end, bool add,
                   const Panels<Sum<W>>& to) {
  alignas(64) W stepped[By::kStep == 1 ? 1 : kDepth * kPanel];
  for (int64_t first = 0; first < rows; first += kDepth)
    for (int64_t k = begin; k < end; k += kPanel) {
      const int64_t depth = depth_from(first, rows);
      const W* const numbers = By::stepped(a.panel(k) + first * kPanel, depth, stepped);
      over_panels<By, Along::rows, kRows, kPanels>(numbers, 0, kPanel, b, first, depth, add || first > 0, to, k);
    }
}

/// The numbers of rows of a product and of an outer product, and of panels, must leave registers for the values read.
template <class By, int kRows, int kOuterRows, int kPanels>
constexpr ProductKernels<typename By::Number> products_of() {
  return {.product = product<By, kRows, kPanels, typename By::Number>,
          .outer_product = outer_product<By, kOuterRows, kPanels, typename By::Number>};
}

}  // namespace
}  // namespace trainopt::kernels
