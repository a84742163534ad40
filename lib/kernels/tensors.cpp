#include "kernels/tensors.h"

#include "base/error.h"
#include "device/stream.h"

namespace trainopt::cuda {

Number number_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return Number::float32;
    case at::kBFloat16:
      return Number::bfloat16;
    case at::kHalf:
      return Number::float16;
    default:
      throw BrokenInvariant("kernels take float32, bfloat16 and float16");
  }
}

// libtorch's stream of the CPU has no handle.
void* queue_of(at::Device device) {
  return device.is_cpu() ? nullptr : Stream::current(device).handle().native_handle();
}

}  // namespace trainopt::cuda
