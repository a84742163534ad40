// The tensors written by the first steps of two arms, in pairs.
#pragma once

#include "model/tensor_file.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// A tensor of A and B's tensor of the same name, or two sets of tensors as one long vector each, by their inner
/// products.
struct TensorPair {
  std::string name;
  int64_t numbers = 0;  ///< elements in each of the two
  double aa = 0, bb = 0, ab = 0;

  /// 1 if both are zero, 0 if one is.
  double cosine() const;
  /// The distance between the two after normalising each to length 1. If it is small, about the relative size of the
  /// difference between them. From 0 to 2.
  double chord() const;
  double norm_ratio() const;  ///< B's divided by A's; 1 if both are zero
  /// |log norm_ratio()|; kZeroNormChange if one of them is zero: finite, so that JSON can hold it.
  double norm_change() const;
  static constexpr double kZeroNormChange = 1e3;

  bool is_finite() const;
};

/// In A's order. nullopt: names or shapes differ. `absent_is_zero`: a tensor that only one of them has counts as zeros
/// in the other (a gradient that backward did not reach).
std::optional<std::vector<TensorPair>> pair_tensors(const NamedTensors& a, const NamedTensors& b,
                                                    bool absent_is_zero = false);

/// All of `pairs` as one long vector.
TensorPair combined(const std::vector<TensorPair>& pairs);

}  // namespace trainopt
