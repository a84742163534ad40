// The floating-point operations of one call, from its input shapes, by PyTorch's own formulas
// (torch/csrc/profiler/util.cpp, computeFlops, which Python's `with_flops` prints but does not store in the trace).
// They do not know oneDNN's linear, which is counted as mm is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt::trace {

/// FLOPs of a call of aten::conv2d, mm, addmm, bmm, baddbmm, mul or add, or of oneDNN's linear; -1 for any other
/// operation, and if the shapes do not fit it. `shapes`: `Input Dims` as text, "[[4, 3], [3, 5]]". `values`: `Concrete
/// Inputs`; only the convolution needs them (stride, padding, dilation and groups).
int64_t flops_of(std::string_view operation, std::string_view shapes, const std::vector<std::string>& values);

// Whether a kernel computes on tensor cores, judged by its name.

enum class TensorCores : uint8_t { yes, no, unknown };

/// The first rule that matches decides; no rule: unknown. A name is not a measurement: a kernel can
/// hide its instructions behind any name.
TensorCores uses_tensor_cores(std::string_view kernel);

/// "yes", "no" or "unknown".
std::string_view to_text(TensorCores uses);

}  // namespace trainopt::trace
