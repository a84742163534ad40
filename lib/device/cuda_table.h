// The functions that libtrainopt_cuda.so gives the program. The library contains nothing of the program's own modules
// but headers, so that no variable exists twice. Both are one build, which open_cuda_library() checks. Types are
// libtorch's and plain ones; exceptions cross in both directions.
#pragma once

#include "device/device.h"
#include "device/graph.h"
#include "device/memory.h"
#include "device/sync_reports.h"
#include "device/trace_range.h"

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace trainopt {

namespace kernels {
namespace device {
class NormLaunches;
class PoolLaunches;
class HeadLaunches;
class LayerNormLaunches;
class GeluLaunches;
class FinishLaunches;
}  // namespace device
namespace update {
class UpdateLaunches;
}
}  // namespace kernels

/// Each has the name of the function that calls it; cuda_update_launches is called by kernels::update::cuda_launches().
struct CudaTable {
  // device.h, gpu_error.h
  decltype(trainopt::start_cuda)* start_cuda;
  decltype(trainopt::gpu_facts)* gpu_facts;
  decltype(trainopt::start_error)* start_error;
  decltype(trainopt::open_gpu)* open_gpu;
  decltype(trainopt::gpu_fault)* gpu_fault;
  // graph.h, memory.h, sync_reports.h, trace_range.h
  decltype(trainopt::make_graph)* make_graph;
  decltype(trainopt::record_gpu_memory_history)* record_gpu_memory_history;
  decltype(trainopt::end_gpu_memory_history)* end_gpu_memory_history;
  decltype(trainopt::gpu_memory_snapshot)* gpu_memory_snapshot;
  decltype(trainopt::set_sync_warnings)* set_sync_warnings;
  decltype(trainopt::begin_nvtx_range)* begin_nvtx_range;
  decltype(trainopt::end_nvtx_range)* end_nvtx_range;
  // comm/process_groups.h
  c10::intrusive_ptr<c10d::Backend> (*make_nccl)(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
                                                 double timeout_s);
  // kernels/*/launch.h
  const kernels::device::NormLaunches* (*cuda_norm_launches)();
  const kernels::device::PoolLaunches* (*cuda_pool_launches)();
  const kernels::device::HeadLaunches* (*cuda_head_launches)();
  const kernels::device::LayerNormLaunches* (*cuda_layer_norm_launches)();
  const kernels::device::GeluLaunches* (*cuda_gelu_launches)();
  const kernels::device::FinishLaunches* (*cuda_finish_launches)();
  const kernels::update::UpdateLaunches* (*cuda_update_launches)();
};

/// The one symbol that the library exports: a CudaTable.
inline constexpr const char* kCudaTable = "trainopt_cuda";

}  // namespace trainopt
