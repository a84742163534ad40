// Peaks that vendors state.
#pragma once

#include <optional>
#include <string_view>

namespace trainopt {

/// FLOP/s of dense products of this element type ("float32", "TF32", "bfloat16", "float16") on the device with exactly
/// this name; null for any other. From NVIDIA's data sheets, whose figures with sparsity are halved.
std::optional<double> data_sheet_flops_per_s(std::string_view device, std::string_view type);

}  // namespace trainopt
