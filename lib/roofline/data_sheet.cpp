#include "roofline/data_sheet.h"

#include <array>

namespace trainopt {
namespace {

struct Sheet {
  std::string_view device;           ///< as the driver names it
  double float32, rounded, float16;  ///< TFLOP/s; `rounded`: of TF32; bfloat16 is as fast as float16
};

constexpr std::array kSheets{
    Sheet{"NVIDIA A10", 31.2, 62.5, 125},           Sheet{"NVIDIA A100-SXM4-40GB", 19.5, 156, 312},
    Sheet{"NVIDIA A100-SXM4-80GB", 19.5, 156, 312}, Sheet{"NVIDIA A100 80GB PCIe", 19.5, 156, 312},
    Sheet{"NVIDIA H100 80GB HBM3", 67, 494.5, 989}, Sheet{"NVIDIA H100 PCIe", 51, 378, 756},
    Sheet{"NVIDIA H200", 67, 494.5, 989},           Sheet{"NVIDIA L4", 30.3, 60, 121},
    Sheet{"NVIDIA L40S", 91.6, 183, 362},
};

}  // namespace

std::optional<double> data_sheet_flops_per_s(std::string_view device, std::string_view type) {
  for (const Sheet& sheet : kSheets) {
    if (sheet.device != device) continue;
    if (type == "float32") return sheet.float32 * 1e12;
    if (type == "TF32") return sheet.rounded * 1e12;
    if (type == "bfloat16" || type == "float16") return sheet.float16 * 1e12;
  }
  return std::nullopt;
}

}  // namespace trainopt
