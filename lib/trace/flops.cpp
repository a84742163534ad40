#include "trace/flops.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <string>

namespace trainopt::trace {
namespace {

using Shape = std::vector<int64_t>;

/// The numbers of each list at depth two: "[[4, 3], [], [[5]]]" gives {4, 3}, {} and {5}.
std::vector<Shape> parse_shapes(std::string_view text) {
  std::vector<Shape> shapes;
  int depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '[' && ++depth == 2) shapes.emplace_back();
    if (c == ']') --depth;
    if (c < '0' || c > '9' || shapes.empty()) continue;
    int64_t number = 0;
    const auto end = std::from_chars(text.data() + at, text.data() + text.size(), number).ptr;
    at = static_cast<size_t>(end - text.data()) - 1;
    shapes.back().push_back(number);
  }
  return shapes;
}

/// The two numbers of "[1, 2]"; "[1]" stands for both, as libtorch's C++ functions take it.
std::optional<std::array<int64_t, 2>> pair_of(std::string_view text) {
  const auto lists = parse_shapes("[" + std::string(text) + "]");
  if (lists.size() != 1 || lists[0].empty() || lists[0].size() > 2) return {};
  return std::array{lists[0].front(), lists[0].back()};
}

int64_t product(const Shape& shape) {
  int64_t all = 1;
  for (const int64_t size : shape) all *= size;
  return all;
}

/// 2·m·n·k: `left` is m × k and `right` is k × n or n × k, both after `batch_dimensions` equal dimensions.
int64_t matrix_product(const Shape& left, const Shape& right, size_t batch_dimensions) {
  if (left.size() < batch_dimensions + 1 || right.size() < batch_dimensions + 1) return -1;
  int64_t shared = left.back();
  for (size_t i = 0; i < batch_dimensions; ++i) shared *= left[i];
  if (shared == 0) return 0;
  return 2 * (product(left) / shared) * product(right);
}

int64_t convolution(const std::vector<Shape>& shapes, const std::vector<std::string>& values) {
  if (shapes.size() < 2 || shapes[0].size() != 4 || shapes[1].size() != 4 || values.size() < 7) return -1;
  const auto stride = pair_of(values[3]), padding = pair_of(values[4]), dilation = pair_of(values[5]);
  int64_t groups = 0;
  std::from_chars(values[6].data(), values[6].data() + values[6].size(), groups);
  if (!stride || !padding || !dilation || groups < 1 || (*stride)[0] * (*stride)[1] == 0) return -1;
  const Shape &input = shapes[0], &weight = shapes[1];
  int64_t outputs = 1;
  for (size_t i = 0; i < 2; ++i)
    outputs *= (input[2 + i] + 2 * (*padding)[i] - (*dilation)[i] * (weight[2 + i] - 1) - 1) / (*stride)[i] + 1;
  return 2 * input[0] * outputs * weight[2] * weight[3] * input[1] * weight[0] / groups;
}

bool has_flops(std::string_view operation) {
  constexpr std::array<std::string_view, 8> kKnown = {
      "aten::conv2d",  "aten::mm",  "aten::addmm", "aten::bmm",
      "aten::baddbmm", "aten::mul", "aten::add",   "mkldnn::_linear_pointwise"};
  return std::find(kKnown.begin(), kKnown.end(), operation) != kKnown.end();
}

}  // namespace

int64_t flops_of(std::string_view operation, std::string_view shapes_text, const std::vector<std::string>& values) {
  if (!has_flops(operation)) return -1;
  const auto shapes = parse_shapes(shapes_text);
  if (shapes.empty()) return -1;
  if (operation == "aten::conv2d") return convolution(shapes, values);
  if (operation == "aten::mul" || operation == "aten::add") return product(shapes[0]);
  // In addmm and baddbmm the matrices follow the tensor that is added.
  const size_t left = operation == "aten::addmm" || operation == "aten::baddbmm" ? 1 : 0;
  if (shapes.size() < left + 2) return -1;
  const bool batched = operation == "aten::bmm" || operation == "aten::baddbmm";
  return matrix_product(shapes[left], shapes[left + 1], batched ? 1 : 0);
}

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
