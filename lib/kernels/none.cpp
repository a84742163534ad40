// Stubs for builds without CUDA.
#include "kernels/gelu/launch.h"
#include "kernels/head/launch.h"
#include "kernels/image_finish/launch.h"
#include "kernels/layer_norm/launch.h"
#include "kernels/norm/launch.h"
#include "kernels/pool/launch.h"
#include "kernels/update/launch.h"

namespace trainopt::kernels {
namespace device {

const NormLaunches* cuda_norm_launches() { return nullptr; }
const PoolLaunches* cuda_pool_launches() { return nullptr; }
const HeadLaunches* cuda_head_launches() { return nullptr; }
const LayerNormLaunches* cuda_layer_norm_launches() { return nullptr; }
const GeluLaunches* cuda_gelu_launches() { return nullptr; }
const FinishLaunches* cuda_finish_launches() { return nullptr; }

}  // namespace device

namespace update {

const UpdateLaunches* cuda_launches() { return nullptr; }

}  // namespace update
}  // namespace trainopt::kernels
