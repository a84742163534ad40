#include "kernels/on_device.cuh"
#include "optimizations/fused_kernels/cuda/passes.cuh"

namespace trainopt::fused_kernels::cuda {

const Passes* cuda_passes() {
  static const LaunchedPasses passes;
  return &passes;
}

}  // namespace trainopt::fused_kernels::cuda
