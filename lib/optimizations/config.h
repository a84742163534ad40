// The `optimizations` section of a recipe: one option per switch, with the names that other tools use for it.
// make_plan() defines the order in which switches are applied.
#pragma once

#include "config/describe.h"
#include "optimizations/activation_checkpointing/activation_checkpointing.h"
#include "optimizations/amp/amp.h"
#include "optimizations/attention/attention.h"
#include "optimizations/cuda_allocator/cuda_allocator.h"
#include "optimizations/device_preprocess/device_preprocess.h"
#include "optimizations/fp8/fp8.h"
#include "optimizations/host_allocator/host_allocator.h"
#include "optimizations/precision/precision.h"
#include "optimizations/winograd/winograd.h"

namespace trainopt {

struct OptimizationsConfig {
  bool channels_last = false;
  bool tf32 = false;
  bool cudnn_benchmark = false;
  AttentionKernel attention = AttentionKernel::automatic;
  Switch<amp::Config> amp;
  Switch<activation_checkpointing::Config> activation_checkpointing;
  Switch<precision::Config> precision;
  Switch<fp8::Config> fp8;
  bool set_to_none = false;
  Switch<device_preprocess::Config> device_preprocess;
  Switch<host_allocator::Config> host_allocator;
  Switch<cuda_allocator::Config> cuda_allocator;
  bool fused_optimizer = false;
  bool fused_kernels = false;
  Switch<winograd::Config> winograd;
  bool cuda_graph = false;
};
template <class V>
void describe(V& v, OptimizationsConfig& c) {
  v.toggle("amp", c.amp, "Run convolutions and matrix products in bfloat16 or float16 (autocast).");
  v.toggle("precision", c.precision,
           "Hold weights in bfloat16, without a float32 copy; needs amp, whose matrix products then cast no weight.");
  v.toggle("fp8", c.fp8,
           "Give the products of linear layers 8-bit inputs; NVIDIA GPUs from sm_89. On CPUs only their rounding.");
  v.field("channels_last", c.channels_last, "Store weights and activations in NHWC order.");
  v.field("tf32", c.tf32, "Allow TF32 in float32 convolutions and matrix products; NVIDIA GPUs from sm_80.");
  v.field("cudnn_benchmark", c.cudnn_benchmark,
          "Let cuDNN time its algorithms for each new shape and use the fastest.");
  v.field(
      "attention", c.attention,
      "Attention: auto is libtorch's choice, math the operations one by one; flash, efficient and cudnn fall back to "
      "math where they do not support the tensors.");
  v.toggle("activation_checkpointing", c.activation_checkpointing,
           "Free activations after forward and compute them again in backward.");
  v.field("set_to_none", c.set_to_none, "Free gradients after each update instead of zeroing them.");
  v.toggle("device_preprocess", c.device_preprocess,
           "Copy images to the device as uint8; convert and normalise them there.");
  v.toggle("host_allocator", c.host_allocator, "Allocate CPU tensors from a caching allocator instead of malloc.");
  v.toggle("cuda_allocator", c.cuda_allocator,
           "Change how libtorch's allocator divides GPU memory, so that less of it is lost to fragmentation.");
  v.field("fused_optimizer", c.fused_optimizer,
          "Update all parameters in one operation instead of several per parameter.");
  v.field("fused_kernels", c.fused_kernels,
          "Use fused kernels: batch-norm with addition, ReLU and max-pool (implies NHWC), average pool, loss; in "
          "transformers layer norm with addition, GELU with bias, and a language model's last layer with its loss.");
  v.toggle("winograd", c.winograd,
           "Winograd 3×3 convolutions on the CPU, with a quarter of the multiplications; implies NHWC.");
  v.field("cuda_graph", c.cuda_graph, "Record the step as CUDA graphs and replay it; needs fused_optimizer.");
}

}  // namespace trainopt
