// The whole data set is cached on the device as uint8, and batches are gathered from it by index: no image is loaded or
// copied during training.
#pragma once

#include "optimizations/info.h"

namespace trainopt {
struct Plan;
struct Outcome;
}  // namespace trainopt

namespace trainopt::device_cache {

inline constexpr Info kInfo{"cache", Exactness::same_bits};

/// data.cache: device. Throws UserError if the transforms or the device's memory do not allow it.
Outcome apply(Plan& plan);

}  // namespace trainopt::device_cache
