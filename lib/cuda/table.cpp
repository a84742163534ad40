#include "device/cuda_table.h"

#include "comm/process_groups.h"
#include "kernels/gelu/launch.h"
#include "kernels/head/launch.h"
#include "kernels/image_finish/launch.h"
#include "kernels/layer_norm/launch.h"
#include "kernels/norm/launch.h"
#include "kernels/pool/launch.h"
#include "kernels/update/launch.h"

using namespace trainopt;
using namespace trainopt::kernels::device;

extern "C" __attribute__((visibility("default"))) const CudaTable trainopt_cuda{
    .start_cuda = start_cuda,
    .gpu_facts = gpu_facts,
    .start_error = start_error,
    .open_gpu = open_gpu,
    .gpu_fault = gpu_fault,
    .make_graph = make_graph,
    .record_gpu_memory_history = record_gpu_memory_history,
    .end_gpu_memory_history = end_gpu_memory_history,
    .gpu_memory_snapshot = gpu_memory_snapshot,
    .set_sync_warnings = set_sync_warnings,
    .begin_nvtx_range = begin_nvtx_range,
    .end_nvtx_range = end_nvtx_range,
    .make_nccl = make_nccl,
    .cuda_norm_launches = cuda_norm_launches,
    .cuda_pool_launches = cuda_pool_launches,
    .cuda_head_launches = cuda_head_launches,
    .cuda_layer_norm_launches = cuda_layer_norm_launches,
    .cuda_gelu_launches = cuda_gelu_launches,
    .cuda_finish_launches = cuda_finish_launches,
    .cuda_update_launches = kernels::update::cuda_launches,
};
