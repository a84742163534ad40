#include "kernels/on_device.cuh"
#include "kernels/update/device.cuh"

namespace trainopt::kernels::update {

const UpdateLaunches* cuda_launches() {
  static const DeviceUpdateLaunches launches;
  return &launches;
}

}  // namespace trainopt::kernels::update
