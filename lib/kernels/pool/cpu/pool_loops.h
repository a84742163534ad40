// The loops of PoolRows for vectors V; see kernels/cpu/row_loops.h.
#pragma once

#include "kernels/norm/cpu/norm_loops.h"
#include "kernels/pool/cpu/rows.h"

namespace trainopt::kernels {

template <class V, class T>
struct PoolLoops : NormLoops<V, T> {
  using Base = NormLoops<V, T>;
  using typename Base::Numbers;
  using Positions = typename V::Positions;

  /// The rows or columns [first, last) of a window that lie inside the image.
  struct Span {
    Span(int64_t begins, int64_t size)
        : first(begins < 0 ? -begins : 0), last(size - begins < kWindow ? size - begins : kWindow) {}
    bool is_full() const { return first == 0 && last == kWindow; }
    int64_t first, last;
  };

  /// Among some pixels of a window, the one where z = scale · x + shift is largest; the first if several are equal.
  struct Best {
    Numbers z, x;
    Positions position;
  };
  static Best better(const Best& first, const Best& second) {
    const auto wins = V::greater(second.z, first.z);
    return {V::choose(wins, second.z, first.z), V::choose(wins, second.x, first.x),
            V::choose(wins, second.position, first.position)};
  }

  /// A pooled line and its inputs.
  struct PooledLine {
    const T* x;  ///< top left pixel of the line's first window; not read where it is outside the image
    T *values, *chosen;
    uint8_t* positions;
    const float *scale, *shift;
    int64_t width, channels;

    const T* pixel(int64_t row, int64_t column) const { return x + (row * width + column) * channels; }
    Numbers z(Numbers value, int64_t c) const { return V::multiply_add(value, V::load(scale + c), V::load(shift + c)); }
  };

  /// Pools window `q` over the given rows and columns, for channels from `c` on.
  static void window(const PooledLine& line, int64_t q, Span rows, Span columns, int64_t c) {
    const int64_t at = q * line.channels;
    const auto work = [&](const auto& lanes) {
      const auto pixel = [&](int64_t row, int64_t column) {
        const Numbers value = lanes.load(line.pixel(row, q * kStride + column) + c);
        return Best{line.z(value, c), value, V::all(static_cast<int>(row * kWindow + column))};
      };
      Best best = pixel(rows.first, columns.first);
      auto bad = V::nan_in(best.z, best.z);
      for (int64_t row = rows.first; row < rows.last; ++row)
        for (int64_t column = columns.first; column < columns.last; ++column) {
          const Best one = pixel(row, column);
          best = better(best, one);
          bad = V::either(bad, V::nan_in(one.z, one.z));
        }
      const auto counts = V::greater(best.z, V::zero());  // ReLU: values ≤ 0 do not
      lanes.store(line.values + at + c, V::choose(bad, V::nan(), V::where(counts, best.z)));
      lanes.store(line.chosen + at + c, best.x);
      lanes.store(line.positions + at + c, V::choose(counts, best.position, V::all(kNoPosition)));
    };
    for (; c + V::kLanes <= line.channels; c += V::kLanes) work(FullVector<V>());
    if (c < line.channels) work(PartialVector<V>{line.channels - c});
  }

  using Order = typename V::template Order<T>;
  struct Key {
    typename Order::Keys key;
    typename Order::Positions position;
  };
  static Key better(const Key& first, const Key& second) {
    const auto wins = Order::greater(second.key, first.key);
    return {Order::choose(wins, second.key, first.key), Order::choose(wins, second.position, first.position)};
  }
  /// The keys of one column of a window. A window's right column is the next window's left column.
  struct Column {
    typename Order::Keys rows[kWindow];
    typename Order::Nan nan;
  };
  static Column column_of(const PooledLine& line, int64_t column, int64_t c, typename Order::Keys signs) {
    Column keys{{Order::load(line.pixel(0, column) + c, signs), Order::load(line.pixel(1, column) + c, signs),
                 Order::load(line.pixel(2, column) + c, signs)},
                {}};
    keys.nan = Order::nan_of(keys.rows[0], keys.rows[1], keys.rows[2]);
    return keys;
  }

  /// Windows per group: few enough that their pixels are still in the L1 cache for the next channels.
  static constexpr int64_t kAtOnce = 4;

  /// Pools complete windows [begin, end) by the order of x, which is the order of z or its reverse, so that values are
  /// compared as they are in memory. Returns the number of channels done. `line` is a copy, so that stores of results
  /// cannot alias it.
  static int64_t ordered_windows(const PooledLine line, int64_t begin, int64_t end) {
    int64_t c = 0;
    for (; c + Order::kLanes <= line.channels; c += Order::kLanes) {
      const auto signs = Order::signs(line.scale + c);
      Column left = column_of(line, begin * kStride, c, signs);
      for (int64_t q = begin; q < end; ++q) {
        const int64_t at = q * line.channels + c;
        // Prefetches the rows that the next pooled line does not share with this one.
        for (int64_t row = kWindow; row < kWindow + kStride; ++row)
          for (int64_t column = 1; column < kWindow; ++column)
            __builtin_prefetch(line.pixel(row, q * kStride + column) + c);
        const Column middle = column_of(line, q * kStride + 1, c, signs),
                     right = column_of(line, q * kStride + 2, c, signs);
        const auto best_of = [&](int row) {
          const Key a{left.rows[row], Order::all(3 * row)}, b{middle.rows[row], Order::all(3 * row + 1)},
              d{right.rows[row], Order::all(3 * row + 2)};
          return better(better(a, b), d);
        };
        const Key best = better(better(best_of(0), best_of(1)), best_of(2));
        const auto chosen = Order::samples(Order::with_nan(best.key, left.nan, middle.nan, right.nan), signs);
        Order::store(line.chosen + at, chosen);
        constexpr int64_t kParts = Order::kLanes / V::kLanes;
        Numbers values[kParts];
        typename V::Mask counts[kParts];
#pragma GCC unroll 2
        for (int64_t i = 0; i < kParts; ++i) {
          const Numbers z = line.z(Order::part(chosen, static_cast<int>(i)), c + i * V::kLanes);
          values[i] = V::relu(z);  // NaN stays NaN
          counts[i] = V::greater(z, V::zero());
        }
        Order::store(line.values + at, values);
        Order::store(line.positions + at, Order::choose(Order::joined(counts), best.position, Order::all(kNoPosition)));
        left = right;
      }
    }
    return c;
  }

  /// Whether scale · x + shift has the order of x or its reverse, and is NaN only where x is.
  static bool keeps_order(const float* scale, const float* shift, int64_t channels) {
    constexpr float kMaxFloat = 3.4028235e38f;
    bool keeps = true;
    for (int64_t c = 0; c < channels; ++c) {
      const float size = scale[c] < 0 ? -scale[c] : scale[c];
      keeps = keeps && size > 0 && size <= kMaxFloat && shift[c] >= -kMaxFloat && shift[c] <= kMaxFloat;
    }
    return keeps;
  }

  static void pool(const T* x, T* values, uint8_t* positions, T* chosen, const PoolShape& s, int64_t pooled_line,
                   const float* scale, const float* shift) {
    const int64_t top = pooled_line * kStride - kPadding, out = pooled_line * s.pooled_width * s.channels;
    const PooledLine line{x + (top * s.width - kPadding) * s.channels,
                          values + out,
                          chosen + out,
                          positions + out,
                          scale,
                          shift,
                          s.width,
                          s.channels};
    const Span rows(top, s.height);
    const auto columns = [&](int64_t q) { return Span(q * kStride - kPadding, s.width); };
    const bool ordered = rows.is_full() && keeps_order(scale, shift, s.channels);
    for (int64_t q = 0; q < s.pooled_width;) {
      int64_t end = q;
      while (ordered && end < s.pooled_width && end < q + kAtOnce && columns(end).is_full()) ++end;
      const int64_t done = end > q ? ordered_windows(line, q, end) : 0;
      if (end == q) ++end;
      for (; q < end; ++q) window(line, q, rows, columns(q), done);
    }
  }

  static void sums(const T* gradient, const uint8_t* positions, const T* chosen, int64_t rows, int64_t channels,
                   const float* mean, float* sums, float* products) {
    Base::sum_rows(
        rows, channels, sums, products, [=](int64_t row, int64_t c, const auto& lanes, Numbers& sum, Numbers& product) {
          const int64_t at = row * channels + c;
          const Numbers g = V::except(V::equal(lanes.load(positions + at), kNoPosition), lanes.load(gradient + at));
          sum += g;
          product = V::multiply_add(g, lanes.load(chosen + at) - V::load(mean + c), product);
        });
  }

  /// Two adjacent pixels: the left one is in the middle column of window `q`; the right one is in the right column of
  /// `q` and the left column of the next window. Lines work alike: a line of pixels is in `kLines` lines of windows and
  /// is row `row` of the first. `right`, `next`: whether the right pixel and the next window exist.
  template <int kLines, class Whole>
  static void pixel_pair(const T* gradient, const uint8_t* positions, const T* x, T* result, const PoolShape& s,
                         int row, bool right, bool next, const Combination& by) {
    const int64_t channels = s.channels, below = s.pooled_width * channels;
    const T* next_line = x + s.width * channels;
    Base::template each_vector<Whole>(channels, [=, &by](int64_t c, const auto& lanes) {
      __builtin_prefetch(next_line + c);
      __builtin_prefetch(next_line + channels + c);
      Numbers of_left = V::zero(), of_right = V::zero();
#pragma GCC unroll 2
      for (int line = 0; line < kLines; ++line) {
        const int position =
            line == 0 ? row * static_cast<int>(kWindow) : 0;  // this line is the first row of the window below
        const int64_t at = line * below + c;
        const auto found = lanes.load(positions + at);
        const Numbers g = lanes.load(gradient + at);
        of_left += V::where(V::equal(found, position + 1), g);
        of_right += V::where(V::equal(found, position + 2), g);
        if (next)
          of_right +=
              V::where(V::equal(lanes.load(positions + at + channels), position), lanes.load(gradient + at + channels));
      }
      lanes.store(result + c, Base::combined(by, of_left, lanes.load(x + c), c));
      if (right) lanes.store(result + channels + c, Base::combined(by, of_right, lanes.load(x + channels + c), c));
    });
  }

  template <int kLines, class Whole>
  static void gradient_line(const T* gradient, const uint8_t* positions, const T* x, T* result, const PoolShape& s,
                            int row, const Combination& by) {
    const int64_t last = s.pooled_width - 1;
    for (int64_t q = 0; q < last; ++q) {
      const int64_t at = q * s.channels;
      pixel_pair<kLines, Whole>(gradient + at, positions + at, x + 2 * at, result + 2 * at, s, row, true, true, by);
    }
    const int64_t at = last * s.channels;
    pixel_pair<kLines, Whole>(gradient + at, positions + at, x + 2 * at, result + 2 * at, s, row,
                              2 * last + 1 < s.width, false, by);
  }

  template <class Whole>
  static auto gradient_line_in(bool two_lines) {
    return two_lines ? &gradient_line<2, Whole> : &gradient_line<1, Whole>;
  }
  static void input_gradient(const T* gradient, const uint8_t* positions, const T* x, T* result, const PoolShape& s,
                             int64_t line, const Combination& by, bool streams) {
    const int64_t window = line / kStride, pooled = window * s.pooled_width * s.channels,
                  at = line * s.width * s.channels;
    const bool odd = line % kStride == 1;
    const bool two_lines = odd && window + 1 < s.pooled_height;
    const auto run =
        streams ? gradient_line_in<StreamedVector<V>>(two_lines) : gradient_line_in<FullVector<V>>(two_lines);
    run(gradient + pooled, positions + pooled, x + at, result + at, s, odd ? 2 : 1, by);
    if (streams) V::end_streaming();
  }
};

template <class V, class T>
constexpr PoolRows<T> pool_rows() {
  using Loops = PoolLoops<V, T>;
  return {&Loops::pool, &Loops::input_gradient, &Loops::sums};
}

}  // namespace trainopt::kernels
