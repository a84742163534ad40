// The properties of winograd with products of bfloat16.
#pragma once

#include "optimizations/info.h"

namespace trainopt::winograd {

inline constexpr Info kRoundedInfo{"winograd", Exactness::new_math};

}  // namespace trainopt::winograd
