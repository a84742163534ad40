// The one part of device.h that needs CUDA's own headers: cuda/facts.cpp or none/facts.cpp.
#pragma once

#include "device/device.h"

namespace trainopt {

/// Facts of GPU `index`, which exists.
DeviceFacts gpu_facts(int index);

}  // namespace trainopt
