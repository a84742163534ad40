// The device of these tests.
#pragma once

#include <c10/core/Device.h>

namespace trainopt::test {

inline const at::Device kGpu(at::kCUDA, 0);

}  // namespace trainopt::test
