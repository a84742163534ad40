// The loops of attention around its products. They use raw memory only; the rules of kernels/cpu/row_loops.h apply.
#pragma once

#include "kernels/products/products.h"

#include <cstdint>

namespace trainopt::kernels {

/// The rows of scores that a block computes, and what a causal mask leaves of each. The numbers of columns are
/// multiples of kPanel, and whole panels are written: zero where there is no key.
struct ScoreRows {
  int64_t rows;
  int64_t first;  ///< token of row 0
  int64_t keys;   ///< number of keys in the sequence
  bool causal;

  [[gnu::always_inline]] int64_t keys_of(int64_t row) const {
    const int64_t own = first + row + 1;
    return causal && own < keys ? own : keys;
  }
};

/// T: type of the tensors. Rows in tensors are `stride` values apart.
template <class T>
struct AttentionLoops {
  /// to[r][c] = from[r][c] · factor for rows × width values; zero in the rest of `to`.
  void (*pack)(const T* from, int64_t stride, int64_t rows, int64_t width, float factor, const Panels<float>& to);
  /// The inverse, with a factor for each row.
  void (*unpack)(const Panels<float>& from, const float* factors, int64_t rows, int64_t width, T* to, int64_t stride);
  /// to = fromᵀ; rows and columns of both are multiples of kPanel.
  void (*transpose)(const Panels<float>& from, const Panels<float>& to);
  /// Replaces scores by their exponentials, with the row's largest subtracted; stores that and the sum of the results.
  void (*exponentials)(const Panels<float>& scores, const ScoreRows& rows, float* largest, float* sums);
  /// Replaces scores by exp(score − the row's log_sum).
  void (*probabilities)(const Panels<float>& scores, const ScoreRows& rows, const float* log_sums);
  /// gradients = p ∘ (gradients − Σ p ∘ gradients of the row)
  void (*score_gradients)(const Panels<float>& p, int64_t rows, const Panels<float>& gradients);
};

template <class T>
const AttentionLoops<T>& attention_loops_avx2();
template <class T>
const AttentionLoops<T>& attention_loops_avx512();

}  // namespace trainopt::kernels
