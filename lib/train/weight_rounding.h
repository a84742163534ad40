// How an optimizer stores the new values of parameters whose type has fewer bits than it computes with. NearestRounding
// is the plain part.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace trainopt {

/// Posted with the new values for each parameter that is stored so, in profiler traces and in StepTrace.
inline constexpr const char* kWeightRoundingLabel = "trainopt::weight_rounding";

class WeightRounding {
 public:
  virtual ~WeightRounding() = default;
  /// Writes `values` (float32) to the parameter of this name, which has the same sizes. Values that the parameter's
  /// type can represent are not changed.
  virtual void store(const std::string& name, const at::Tensor& values, const at::Tensor& parameter) const = 0;
};

/// Ties to even.
class NearestRounding : public WeightRounding {
 public:
  void store(const std::string&, const at::Tensor& values, const at::Tensor& parameter) const override {
    parameter.copy_(values);
  }
};

}  // namespace trainopt
