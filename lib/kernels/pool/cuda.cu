#include "kernels/on_device.cuh"
#include "kernels/pool/device.cuh"

namespace trainopt::kernels::device {

const PoolLaunches* cuda_pool_launches() {
  static const DevicePoolLaunches launches;
  return &launches;
}

}  // namespace trainopt::kernels::device
