// Whether a kernel computes on tensor cores, judged by its name.
#pragma once

#include <cstdint>
#include <string_view>

namespace trainopt::trace {

enum class TensorCores : uint8_t { yes, no, unknown };

/// The first rule that matches decides (tensor_cores.cpp); no rule: unknown. A name is not a measurement: a kernel can
/// hide its instructions behind any name.
TensorCores uses_tensor_cores(std::string_view kernel);

/// "yes", "no" or "unknown".
std::string_view to_text(TensorCores uses);

}  // namespace trainopt::trace
