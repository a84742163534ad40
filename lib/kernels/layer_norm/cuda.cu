#include "kernels/on_device.cuh"
#include "kernels/layer_norm/device.cuh"

namespace trainopt::kernels::device {

const LayerNormLaunches* cuda_layer_norm_launches() {
  static const DeviceLayerNormLaunches launches;
  return &launches;
}

}  // namespace trainopt::kernels::device
