#include "kernels/on_device.cuh"
#include "data/cuda/finish.cuh"

namespace trainopt::kernels {

FinishKernel finish_on_cuda() {
  return [](const FinishOperands& operands, void* queue) { launch_finish(operands, queue); };
}

}  // namespace trainopt::kernels
