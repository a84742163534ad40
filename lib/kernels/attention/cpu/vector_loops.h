// The loops of attention for vectors V: Avx2 or Avx512.
#pragma once

#include "kernels/attention/cpu/loops.h"
#include "kernels/cpu/exponential.h"

namespace trainopt::kernels {
namespace {

template <class V, class T>
struct VectorLoops {
  using Numbers = typename V::Numbers;

  /// Row `row` from column c on, to the end of the panel.
  static float* at(const Panels<float>& panels, int64_t row, int64_t c) {
    return panels.panel(c) + row * kPanel + c % kPanel;
  }

  static void pack(const T* from, int64_t stride, int64_t rows, int64_t width, float factor, const Panels<float>& to) {
    const Numbers by = V::of(factor);
    for (int64_t c = 0; c < to.columns; c += V::kLanes) {
      float* out = at(to, 0, c);
      const T* in = from + c;
      int64_t row = 0;
      if (width - c >= V::kLanes)
        for (; row < rows; ++row, in += stride, out += kPanel) V::store(out, V::load(in) * by);
      else if (c < width)
        for (; row < rows; ++row, in += stride, out += kPanel) V::store(out, V::load(in, width - c) * by);
      for (; row < to.rows; ++row, out += kPanel) V::store(out, V::zero());
    }
  }

  static void unpack(const Panels<float>& from, const float* factors, int64_t rows, int64_t width, T* to,
                     int64_t stride) {
    for (int64_t row = 0; row < rows; ++row, to += stride) {
      const Numbers by = V::of(factors[row]);
      int64_t c = 0;
      for (; c + V::kLanes <= width; c += V::kLanes) V::store(to + c, V::load(at(from, row, c)) * by);
      if (c < width) V::store(to + c, V::load(at(from, row, c)) * by, width - c);
    }
  }

  static void transpose(const Panels<float>& from, const Panels<float>& to) {
    for (int64_t row = 0; row < from.rows; row += kPanel)
      for (int64_t c = 0; c < from.columns; c += kPanel) {
        const float* const in = at(from, row, c);
        float* const out = at(to, c, row);
        for (int64_t i = 0; i < kPanel; ++i)
          for (int64_t j = 0; j < kPanel; ++j) out[i * kPanel + j] = in[j * kPanel + i];
      }
  }

  /// Replaces the first `count` values of a row by change(values), the rest of its columns by zero.
  template <class F>
  static void each_vector(const Panels<float>& panels, int64_t row, int64_t count, const F& change) {
    int64_t c = 0;
    for (; c + V::kLanes <= count; c += V::kLanes) {
      float* const values = at(panels, row, c);
      V::store(values, change(V::load(values)));
    }
    if (c < count) {
      float* const values = at(panels, row, c);
      const auto valid = V::first(count - c);
      V::store(values, V::choose(valid, change(V::choose(valid, V::load(values), V::zero())), V::zero()));
      c += V::kLanes;
    }
    for (; c < panels.columns; c += V::kLanes) V::store(at(panels, row, c), V::zero());
  }

  static float largest_of(const Panels<float>& scores, int64_t row, int64_t count) {
    const Numbers least = V::of(-__builtin_inff());
    Numbers largest = least;
    int64_t c = 0;
    for (; c + V::kLanes <= count; c += V::kLanes) largest = V::larger(V::load(at(scores, row, c)), largest);
    if (c < count) largest = V::larger(V::choose(V::first(count - c), V::load(at(scores, row, c)), least), largest);
    return V::largest(largest);
  }

  static void exponentials(const Panels<float>& scores, const ScoreRows& rows, float* largest, float* sums) {
    for (int64_t row = 0; row < rows.rows; ++row) {
      const int64_t count = rows.keys_of(row);
      largest[row] = largest_of(scores, row, count);
      const Numbers most = V::of(largest[row]);
      each_vector(scores, row, count, [&](Numbers score) { return exponential<V>(score - most); });
      Numbers sum = V::zero();
      for (int64_t c = 0; c < scores.columns; c += V::kLanes) sum = sum + V::load(at(scores, row, c));
      sums[row] = V::total(sum);
    }
  }

  static void probabilities(const Panels<float>& scores, const ScoreRows& rows, const float* log_sums) {
    for (int64_t row = 0; row < rows.rows; ++row) {
      const Numbers log_sum = V::of(log_sums[row]);
      each_vector(scores, row, rows.keys_of(row), [&](Numbers score) {
        // Rounding may leave a little more than 0. A NaN must stay one.
        return exponential<V>(V::smaller(V::zero(), score - log_sum));
      });
    }
  }

  static void score_gradients(const Panels<float>& p, int64_t rows, const Panels<float>& gradients) {
    for (int64_t row = 0; row < rows; ++row) {
      Numbers sum = V::zero();
      for (int64_t c = 0; c < p.columns; c += V::kLanes)
        sum = V::multiply_add(V::load(at(p, row, c)), V::load(at(gradients, row, c)), sum);
      const Numbers mean = V::of(V::total(sum));
      for (int64_t c = 0; c < p.columns; c += V::kLanes) {
        float* const values = at(gradients, row, c);
        V::store(values, V::load(at(p, row, c)) * (V::load(values) - mean));
      }
    }
  }
};

template <class V, class T>
constexpr AttentionLoops<T> attention_loops() {
  using Loops = VectorLoops<V, T>;
  return {.pack = Loops::pack,
          .unpack = Loops::unpack,
          .transpose = Loops::transpose,
          .exponentials = Loops::exponentials,
          .probabilities = Loops::probabilities,
          .score_gradients = Loops::score_gradients};
}

}  // namespace
}  // namespace trainopt::kernels
