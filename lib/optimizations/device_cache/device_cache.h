// The whole data set lies on the device as uint8, and batches are drawn from it by index: nothing is loaded or copied
// beside the training.
#pragma once

namespace trainopt {
struct Plan;
struct Outcome;
}  // namespace trainopt

namespace trainopt::device_cache {

/// data.cache: device. Throws UserError where the transforms or the device's memory do not allow it.
Outcome apply(Plan& plan);

}  // namespace trainopt::device_cache
