#include "kernels/tensors.h"

#include "base/error.h"
#include "device/stream.h"
#include "device/tensor.h"

namespace trainopt::kernels {

DType dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DType::float32;
    case at::kBFloat16:
      return DType::bfloat16;
    case at::kHalf:
      return DType::float16;
    default:
      throw BrokenInvariant("kernels support only float32, bfloat16 and float16");
  }
}

at::Tensor nhwc(const at::Tensor& tensor) { return tensor.contiguous(at::MemoryFormat::ChannelsLast); }

at::Tensor wide(const at::Tensor& tensor) { return tensor.to(at::kFloat); }

at::Tensor empty_beside(at::IntArrayRef sizes, const at::Tensor& beside, at::ScalarType type, at::MemoryFormat format) {
  return at::empty(sizes, beside.options().dtype(type).memory_format(format).requires_grad(false));
}

int64_t values_per_channel(const at::Tensor& images) { return images.numel() / images.size(1); }

// libtorch's streams of other devices have no handle.
void* queue_of(at::Device device) {
  return device.is_cuda() ? Stream::current(device).handle().native_handle() : nullptr;
}

}  // namespace trainopt::kernels
