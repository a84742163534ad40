// The learning-rate range test: the rate grows by a constant factor at every step, and the losses show from where the
// training learns and from where it fails. Source: Smith, "Cyclical learning rates for training neural networks"
// (2017), section 3.3.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

struct RatePoint {
  double rate, loss;  ///< the loss of the step that this rate follows; may be non-finite
};

struct RateRange {
  std::vector<double> smoothed;      ///< losses of the points up to where training failed; may be empty
  size_t lowest = 0;                 ///< the point with the lowest smoothed loss
  size_t steep = 0;                  ///< with a suggestion: the first point where the loss has made most of its fall
  std::optional<size_t> failed;      ///< the first point at which the loss is as high as at first again, or not finite
  std::optional<double> suggestion;  ///< a rate; null: the test does not show one
  std::string reason;                ///< why this one, or why none
};

/// What the length of an update depends on, apart from the rate.
enum class UpdateLength {
  gradient,  ///< as in SGD: too high a rate makes the weights, and so the gradients, grow without bound
  fixed,     ///< as in AdamW or Lion: the gradient is divided by its size, so too high a rate fails slowly
  weights    ///< as in LARS and LAMB: a step changes a matrix by the same part of its norm, however close the goal is
};

/// `points`: in the order of their rates, which grow; at least kFewestPoints.
inline constexpr size_t kFewestPoints = 10;
RateRange read_rate_range(const std::vector<RatePoint>& points, UpdateLength length);

}  // namespace trainopt
