#include "kernels/on_device.cuh"
#include "kernels/image_finish/device.cuh"

namespace trainopt::kernels::device {

const FinishLaunches* cuda_finish_launches() {
  static const DeviceFinishLaunches launches;
  return &launches;
}

}  // namespace trainopt::kernels::device
