// float32 convolutions and matrix products with inputs rounded to TF32 (10 bits of mantissa) on NVIDIA GPUs from sm_80.
#pragma once

namespace trainopt {
struct Plan;
struct Outcome;
}  // namespace trainopt

namespace trainopt::tf32 {

Outcome apply(Plan& plan);

}  // namespace trainopt::tf32
