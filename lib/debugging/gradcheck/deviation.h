// How far a tensor is from what it should be.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace trainopt::gradcheck {

struct Deviation {
  double relative = 0;  ///< ‖got − wanted‖ ÷ ‖wanted‖ of the worst slice; NaN if a value of either is NaN
  std::string slice;    ///< which it is, as an index: "[:, :, 31, :]"; "[...]": the whole tensor
};

/// The largest relative deviation of the whole tensor and of every slice along each dimension (image, channel, row,
/// column …), so that an error in one row is not diluted by the others. A slice that is smaller than its share of the
/// tensor counts as having that share: what cancels in it is not an error. `wanted`: float64 on the CPU; `got`: any
/// type and device, of the same sizes.
Deviation deviation(const at::Tensor& got, const at::Tensor& wanted);

/// The largest deviation that rounding explains, for results of a `type` that were rounded twice to it, and sums of
/// `terms` in float32.
///
/// Rounding changes a value by at most u of it, the type's unit roundoff: 2u for two roundings. A sum of n rounded
/// terms is off by about √n · u of its size (Higham and Mary 2019, "A new approach to probabilistic rounding error
/// analysis"); a further factor allows for algorithms that add intermediate results of ten times the size, as fast
/// convolutions do, and for the worst of many slices.
double rounding_bound(at::ScalarType type, int64_t terms);

}  // namespace trainopt::gradcheck
