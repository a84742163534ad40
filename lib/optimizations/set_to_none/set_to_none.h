// Gradients are freed after an update: no zeroing, and the first backward writes instead of adding.
#pragma once

#include "optimizations/info.h"

namespace trainopt {
struct Plan;
struct Outcome;
}  // namespace trainopt

namespace trainopt::set_to_none {

inline constexpr Info kInfo{"set_to_none", Exactness::same_bits};

Outcome apply(Plan& plan);

}  // namespace trainopt::set_to_none
