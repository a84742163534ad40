#include "kernels/on_device.cuh"
#include "kernels/gelu/device.cuh"

namespace trainopt::kernels::device {

const GeluLaunches* cuda_gelu_launches() {
  static const DeviceGeluLaunches launches;
  return &launches;
}

}  // namespace trainopt::kernels::device
