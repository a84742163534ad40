// The part of device.h and gpu_error.h that needs CUDA's own headers, so libtrainopt_cuda.so (cuda_library.h).
#pragma once

#include "device/device.h"
#include "device/gpu_error.h"

namespace trainopt {

/// Facts of GPU `index`, which must exist.
DeviceFacts gpu_facts(int index);

struct StartError {
  GpuProblem problem = GpuProblem::none;
  std::string text;  ///< CUDA's own words
};
/// CUDA's error `code`, seen while CUDA starts.
StartError start_error(int code);
/// Why the GPU `label` (gpu_label()) cannot be opened; exit code memory or recipe.
UserError opening_failed(const StartError& error, const std::string& label);
/// Makes GPU `index` this thread's current one and creates its context.
StartError open_gpu(int index);

}  // namespace trainopt
