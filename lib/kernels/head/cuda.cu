#include "kernels/on_device.cuh"
#include "kernels/head/device.cuh"

namespace trainopt::kernels::device {

const HeadLaunches* cuda_head_launches() {
  static const DeviceHeadLaunches launches;
  return &launches;
}

}  // namespace trainopt::kernels::device
