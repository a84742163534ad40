// The whole data set lies on the device as uint8, and batches are drawn from it by index: nothing is loaded or copied
// beside the training.
#pragma once

#include "optimizations/info.h"

namespace trainopt {
struct Plan;
struct Outcome;
}  // namespace trainopt

namespace trainopt::device_cache {

inline constexpr Info kInfo{"cache", Exactness::same_bits};

/// data.cache: device. Throws UserError where the transforms or the device's memory do not allow it.
Outcome apply(Plan& plan);

}  // namespace trainopt::device_cache
