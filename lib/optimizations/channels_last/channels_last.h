// Weights and activations stored as NHWC, the order that convolution kernels of oneDNN and tensor cores want.
#pragma once

namespace trainopt {
struct Plan;
struct Outcome;
}  // namespace trainopt

namespace trainopt::channels_last {

Outcome apply(Plan& plan);

}  // namespace trainopt::channels_last
