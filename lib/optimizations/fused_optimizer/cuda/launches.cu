#include "kernels/on_device.cuh"
#include "optimizations/fused_optimizer/cuda/launches.cuh"

namespace trainopt::fused_optimizer {

const Launches* cuda_launches() {
  static const KernelLaunches launches;
  return &launches;
}

}  // namespace trainopt::fused_optimizer
