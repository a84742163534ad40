#include "trace/tensor_cores.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace trainopt::trace {
namespace {

struct Rule {
  std::string_view part;  ///< in lower case; matches anywhere in the name
  TensorCores uses;
};

// In order; the first match decides. Sources:
// [mma]  PTX ISA, "Matrix multiply-accumulate instructions": the shapes m8n8k4 (884), m16n8k4/8/16/32 (1684, 1688,
//        16816, 16832) and integer m8n8k16 (8816), with the operand type before them: s (fp32 out), h (fp16 out), i.
// [tb]   torch_tb_profiler/profiler/tensor_core.py, after NVIDIA's PyProf (pyprof/prof/tc.py): the list of Volta and
//        Turing names.
// [cut]  CUTLASS: cutlass/library/library.py names its kernels by operation class, `simt` or `tensorop`; its sm90
//        kernels use wgmma (`gmma`), its sm100 kernels tcgen05 (`utcmma`).
// [blas] Names known from traces of cuBLAS 11–13 and cuDNN 8–9: sm80_xmma_… ends in the instruction, or has `_simt_` or
//        `ffma` for the plain multiply-add; …_sgemm_… without an instruction's shape is plain.
// [fa]   FlashAttention (flash_fwd_kernel, flash_bwd_…) and PyTorch's memory-efficient attention (fmha_cutlassF_…).
// [aten] Kernels of ATen that contain no matrix product (aten/src/ATen/native/cuda).
constexpr Rule kRules[] = {
    // What says that it is plain, before families of which only a part is.
    {"simt", TensorCores::no},                // [cut]
    {"ffma", TensorCores::no},                // [blas]
    {"memcpy", TensorCores::no},              // the driver's
    {"memset", TensorCores::no},              // the driver's
    {"nccl", TensorCores::no},                // NCCL reduces on the plain cores
    {"elementwise", TensorCores::no},         // [aten]
    {"multi_tensor_apply", TensorCores::no},  // [aten] foreach and fused optimizers
    {"reduce_kernel", TensorCores::no},       // [aten]
    {"splitkreduce", TensorCores::no},        // [blas] the sum after a split product
    {"splitk_reduce", TensorCores::no},       // [blas]
    {"batch_norm", TensorCores::no},          // [aten]
    {"batchnorm", TensorCores::no},           // [aten]
    {"bn_fw", TensorCores::no},               // cuDNN's batch norm
    {"bn_bw", TensorCores::no},               // cuDNN's batch norm
    {"layer_norm", TensorCores::no},          // [aten]
    {"softmax", TensorCores::no},             // [aten]
    {"nll_loss", TensorCores::no},            // [aten]
    {"pool", TensorCores::no},                // [aten]
    {"triton_poi", TensorCores::no},          // Inductor: pointwise
    {"triton_red", TensorCores::no},          // Inductor: reduction
    {"triton_per", TensorCores::no},          // Inductor: persistent reduction
    {"nchwtonhwc", TensorCores::no},          // cuDNN's layout change
    {"nhwctonchw", TensorCores::no},          // cuDNN's layout change
    // Instructions and shapes.
    {"s884", TensorCores::yes},         // [mma] [tb] Volta
    {"h884", TensorCores::yes},         // [mma] [tb] Volta
    {"d884", TensorCores::yes},         // [mma] Ampere, fp64
    {"i8816", TensorCores::yes},        // [mma] [tb] Turing
    {"s1688", TensorCores::yes},        // [mma] [tb] Turing; Ampere, fp32 rounded to 19 bits
    {"h1688", TensorCores::yes},        // [mma] [tb] Turing
    {"s16816", TensorCores::yes},       // [mma] Ampere
    {"h16816", TensorCores::yes},       // [mma] Ampere
    {"i16832", TensorCores::yes},       // [mma] Ampere
    {"16816", TensorCores::yes},        // [tb] bf16_s16816 and others
    {"tensor16x8x", TensorCores::yes},  // [blas] Ampere xmma
    {"tensor8x8x", TensorCores::yes},   // [blas]
    {"hmma", TensorCores::yes},         // [tb] SASS: half
    {"imma", TensorCores::yes},         // SASS: integer
    {"qmma", TensorCores::yes},         // SASS: 8-bit floating point
    {"dmma", TensorCores::yes},         // SASS: fp64
    {"gmma", TensorCores::yes},         // [cut] Hopper: wgmma, hgmma, qgmma, igmma
    {"tcgen05", TensorCores::yes},      // Blackwell's instruction (PTX ISA)
    {"utcmma", TensorCores::yes},       // [cut] Blackwell; SASS UTC*MMA
    {"utchmma", TensorCores::yes},      // Blackwell, SASS
    {"utcqmma", TensorCores::yes},      // Blackwell, SASS
    // Families.
    {"tensorop", TensorCores::yes},                  // [cut]
    {"sm90_xmma", TensorCores::yes},                 // [blas]
    {"sm100_xmma", TensorCores::yes},                // [blas]
    {"cutlass3x_sm90", TensorCores::yes},            // [cut] has tensor-core kernels only
    {"cutlass3x_sm100", TensorCores::yes},           // [cut]
    {"nvjet", TensorCores::yes},                     // [blas] cuBLAS 12.6 and later, for Hopper and Blackwell
    {"xmma", TensorCores::yes},                      // [blas] without `simt` or `ffma`
    {"fmha", TensorCores::yes},                      // [fa]
    {"flash_fwd", TensorCores::yes},                 // [fa]
    {"flash_bwd", TensorCores::yes},                 // [fa]
    {"first_layer_wgrad_kernel", TensorCores::yes},  // [tb]
    {"dgrad_1x1_stride_2x2", TensorCores::yes},      // [tb]
    {"conv2d_c1_k1", TensorCores::no},               // cuDNN's depthwise kernels
    {"_sgemm_", TensorCores::no},                    // [blas] plain fp32
    {"_scudnn_", TensorCores::no},                   // cuDNN's plain fp32
    {"nonfused", TensorCores::no},                   // cuDNN's transforms around a product
    {"fft2d", TensorCores::no},                      // cuDNN
    {"depthwise", TensorCores::no},                  // [aten]
    {"reduce", TensorCores::no},                     // [aten] and CUB's DeviceReduce…
    {"scan", TensorCores::no},                       // CUB
    {"sort", TensorCores::no},                       // CUB
};

}  // namespace

TensorCores uses_tensor_cores(std::string_view kernel) {
  std::string name(kernel);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const Rule& rule : kRules)
    if (name.find(rule.part) != std::string::npos) return rule.uses;
  return TensorCores::unknown;
}

std::string_view to_text(TensorCores uses) {
  if (uses == TensorCores::unknown) return "unknown";
  return uses == TensorCores::yes ? "yes" : "no";
}

}  // namespace trainopt::trace
