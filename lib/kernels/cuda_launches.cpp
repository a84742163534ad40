// The GPU kernels of each operation: those of libtrainopt_cuda.so, while it is open.
#include "device/cuda_library.h"
#include "device/cuda_table.h"
#include "kernels/gelu/launch.h"
#include "kernels/head/launch.h"
#include "kernels/image_finish/launch.h"
#include "kernels/layer_norm/launch.h"
#include "kernels/norm/launch.h"
#include "kernels/pool/launch.h"
#include "kernels/update/launch.h"

namespace trainopt::kernels {
namespace device {

const NormLaunches* cuda_norm_launches() { return cuda_table() ? cuda_table()->cuda_norm_launches() : nullptr; }
const PoolLaunches* cuda_pool_launches() { return cuda_table() ? cuda_table()->cuda_pool_launches() : nullptr; }
const HeadLaunches* cuda_head_launches() { return cuda_table() ? cuda_table()->cuda_head_launches() : nullptr; }
const LayerNormLaunches* cuda_layer_norm_launches() {
  return cuda_table() ? cuda_table()->cuda_layer_norm_launches() : nullptr;
}
const GeluLaunches* cuda_gelu_launches() { return cuda_table() ? cuda_table()->cuda_gelu_launches() : nullptr; }
const FinishLaunches* cuda_finish_launches() { return cuda_table() ? cuda_table()->cuda_finish_launches() : nullptr; }

}  // namespace device

namespace update {

const UpdateLaunches* cuda_launches() { return cuda_table() ? cuda_table()->cuda_update_launches() : nullptr; }

}  // namespace update
}  // namespace trainopt::kernels
