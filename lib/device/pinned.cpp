#include "device/pinned.h"

#include "base/error.h"
#include "device/device.h"
#include "device/tensor.h"

namespace trainopt {

at::Tensor host_tensor(at::IntArrayRef sizes, at::ScalarType dtype, at::MemoryFormat memory_format, bool pinned) {
  if (pinned && !cuda_available())
    throw UserError("pinned memory needs a GPU and this process sees none: set data.pin_memory to false");
  const at::Tensor tensor =
      at::empty(sizes, at::TensorOptions().dtype(dtype).device(at::kCPU).pinned_memory(pinned), memory_format);
  TRAINOPT_CHECK(reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 64 == 0);
  return tensor;
}

}  // namespace trainopt
