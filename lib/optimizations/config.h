// The `optimizations` section of a recipe: one switch each, in the order in which make_plan() applies them.
#pragma once

#include "config/describe.h"
#include "optimizations/amp/amp.h"
#include "optimizations/device_preprocess/device_preprocess.h"
#include "optimizations/host_allocator/host_allocator.h"

namespace trainopt {

struct OptimizationsConfig {
  bool channels_last = false;
  bool tf32 = false;
  bool cudnn_benchmark = false;
  Switch<amp::Config> amp;
  bool set_to_none = false;
  Switch<device_preprocess::Config> device_preprocess;
  Switch<host_allocator::Config> host_allocator;
  bool fused_optimizer = false;
  bool fused_kernels = false;
  bool winograd = false;
  bool cuda_graph = false;
};
template <class V>
void describe(V& v, OptimizationsConfig& c) {
  v.toggle("amp", c.amp, "Convolutions and matrix products in 16 bits (autocast).");
  v.field("channels_last", c.channels_last, "Weights and activations in NHWC memory order.");
  v.field("tf32", c.tf32, "float32 convolutions and matrix products with TF32 inputs, on NVIDIA GPUs from sm_80.");
  v.field("cudnn_benchmark", c.cudnn_benchmark, "cuDNN times its algorithms for each new shape and keeps the fastest.");
  v.field("set_to_none", c.set_to_none, "Gradients are dropped after an update instead of filled with zeros.");
  v.toggle("device_preprocess", c.device_preprocess,
           "Images cross to the device as uint8; conversion and normalisation happen there.");
  v.toggle("host_allocator", c.host_allocator, "CPU tensors from a caching allocator instead of malloc.");
  v.field("fused_optimizer", c.fused_optimizer, "One operation updates all parameters instead of several for each.");
  v.field("fused_kernels", c.fused_kernels,
          "Batch-norm with addition, ReLU and max-pool, the average pool and the loss in as few passes over memory as "
          "they can have, as NHWC.");
  v.field("winograd", c.winograd, "3×3 convolutions with a quarter of the multiplications, on a CPU, as NHWC.");
  v.field("cuda_graph", c.cuda_graph, "The step is recorded once and replayed; needs fused_optimizer.");
}

}  // namespace trainopt
