// The tensors that two arms' first steps left behind, side by side.
#pragma once

#include "model/tensor_file.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// A tensor of A and the one of B with its name, or two sets of them as one long vector: what their products say.
struct TensorPair {
  std::string name;
  int64_t numbers = 0;  ///< in each of the two
  double aa = 0, bb = 0, ab = 0;

  /// 1 where both are zero, 0 where one is.
  double cosine() const;
  /// The distance of the two when each has been given the length 1: about the relative size of what turned one into the
  /// other, where that is small. From 0 to 2.
  double turn() const;
  double norm_ratio() const;  ///< B's over A's; 1 where both are zero
  /// |log norm_ratio()|; where one of them is zero, kNothing: a number, so that it can be written down.
  double stretch() const;
  static constexpr double kNothing = 1e3;

  bool is_finite() const;
};

/// In A's order. Null: other names or shapes. `absent_is_zero`: a name that one of them lacks is a tensor of zeros
/// there (a gradient that backward did not reach).
std::optional<std::vector<TensorPair>> pair_tensors(const NamedTensors& a, const NamedTensors& b,
                                                    bool absent_is_zero = false);

/// All of `pairs` as one long vector.
TensorPair together(const std::vector<TensorPair>& pairs);

}  // namespace trainopt
