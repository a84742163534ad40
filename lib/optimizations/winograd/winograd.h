// 3×3 convolutions by Winograd's minimal filtering: a quarter of the multiplications, for the arithmetic of a CPU,
// which is what bounds them there.
#pragma once

namespace trainopt {
struct Plan;
struct Outcome;
}  // namespace trainopt

namespace trainopt::winograd {

Outcome apply(Plan& plan);

}  // namespace trainopt::winograd
