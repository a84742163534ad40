// The part of device.h that needs CUDA's own headers; implemented, with gpu_trouble(), in cuda/facts.cpp or
// none/facts.cpp.
#pragma once

#include "device/device.h"

namespace trainopt {

/// Facts of GPU `index`, which must exist.
DeviceFacts gpu_facts(int index);

}  // namespace trainopt
