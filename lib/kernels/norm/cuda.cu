#include "kernels/on_device.cuh"
#include "kernels/norm/device.cuh"

namespace trainopt::kernels::device {

const NormLaunches* cuda_norm_launches() {
  static const DeviceNormLaunches launches;
  return &launches;
}

}  // namespace trainopt::kernels::device
